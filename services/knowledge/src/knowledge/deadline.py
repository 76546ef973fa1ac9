"""One deadline a request, handed on as time left."""

import time
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]
"""Seconds on a monotonic scale."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point on a monotonic clock. A stage gets the smaller of its cap and the time left; caps are never summed."""

    ends_at: float
    clock: Clock = time.monotonic

    @classmethod
    def after(cls, seconds: float, clock: Clock = time.monotonic) -> "Deadline":
        """The deadline `seconds` from now."""
        return cls(clock() + seconds, clock)

    def left(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.ends_at - self.clock())

    def cap(self, seconds: float) -> float:
        """What a stage with a cap of `seconds` may take."""
        return min(seconds, self.left())
