"""The circuit breaker: stop asking a provider that keeps failing, and find out soon when it is back."""

from collections import deque
from collections.abc import Callable
from enum import StrEnum

from knowledge.deadline import Clock

WINDOW_CALLS = 20
WINDOW_S = 30.0
MIN_FAILURES = 5
MIN_FAILURE_SHARE = 0.5
OPEN_S = 2.0


class State(StrEnum):
    """Closed lets everything through, open nothing, half-open one probe."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """One per provider and process. Opens at >= 5 failures that are >= 50 % of the last 20 outcomes of the last 30 s.

    Open for 2 s, then a single probe decides. Outcomes that say nothing about the provider's health are not told to it at all.
    """

    def __init__(self, clock: Clock, on_change: Callable[[State], None] = lambda _: None) -> None:
        self._clock = clock
        self._on_change = on_change
        self._outcomes: deque[tuple[float, bool]] = deque(maxlen=WINDOW_CALLS)
        self._opened_at = 0.0
        self.state = State.CLOSED

    def allows(self) -> bool:
        """Whether a call may be made now. A True out of the open state is the probe: its outcome must be recorded or released."""
        if self.state is State.CLOSED:
            return True
        if self.state is State.OPEN and self._clock() - self._opened_at >= OPEN_S:
            self._move(State.HALF_OPEN)
            return True
        return False

    def succeeded(self) -> None:
        """The provider answered; a partial answer is one too."""
        if self.state is not State.CLOSED:
            self._outcomes.clear()
            self._move(State.CLOSED)
        self._outcomes.append((self._clock(), True))

    def failed(self) -> None:
        """The provider failed in a way that says it is unwell."""
        now = self._clock()
        self._outcomes.append((now, False))
        recent = [ok for at, ok in self._outcomes if now - at <= WINDOW_S]
        failures = recent.count(False)
        if self.state is State.HALF_OPEN or (failures >= MIN_FAILURES and failures >= MIN_FAILURE_SHARE * len(recent)):
            self._opened_at = now
            self._move(State.OPEN)

    def released(self) -> None:
        """The call ended without saying anything about the provider: a half-open probe is given back."""
        if self.state is State.HALF_OPEN:
            self._move(State.OPEN)

    def _move(self, state: State) -> None:
        if state is not self.state:
            self.state = state
            self._on_change(state)
