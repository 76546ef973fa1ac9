"""The circuit breaker: stop asking a provider that keeps failing, and find out soon when it is back."""

from collections import deque
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, eq=False)
class Permit:
    """Leave to make one call; its outcome is told with it, so that a call from before the opening decides nothing after it."""


class Breaker:
    """One per provider and process. Opens at >= 5 failures that are >= 50 % of the last 20 outcomes of the last 30 s.

    Open for 2 s, then a single probe decides. Outcomes that say nothing about the provider's health release their permit.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._outcomes: deque[tuple[float, bool]] = deque(maxlen=WINDOW_CALLS)
        self._opened_at = 0.0
        self._probe: Permit | None = None
        self.state = State.CLOSED

    def admit(self) -> Permit | None:
        """A permit for one call, or None while the provider is left alone."""
        if self.state is State.CLOSED:
            return Permit()
        if self.state is State.OPEN and self._clock() - self._opened_at >= OPEN_S:
            self.state = State.HALF_OPEN
            self._probe = Permit()
            return self._probe
        return None

    def succeeded(self, permit: Permit) -> None:
        """The provider answered; a partial answer is one too."""
        if permit is self._probe:
            self._outcomes.clear()
            self._close_probe(State.CLOSED)
        if self.state is State.CLOSED:
            self._outcomes.append((self._clock(), True))

    def failed(self, permit: Permit) -> None:
        """The provider failed in a way that says it is unwell."""
        now = self._clock()
        if permit is self._probe:
            self._opened_at = now
            self._close_probe(State.OPEN)
        if self.state is not State.CLOSED:
            return
        self._outcomes.append((now, False))
        recent = [ok for at, ok in self._outcomes if now - at <= WINDOW_S]
        failures = recent.count(False)
        if failures >= MIN_FAILURES and failures >= MIN_FAILURE_SHARE * len(recent):
            self._opened_at = now
            self.state = State.OPEN

    def released(self, permit: Permit) -> None:
        """The call ended without saying anything about the provider: the next one may be the probe."""
        if permit is self._probe:
            self._close_probe(State.OPEN)

    def _close_probe(self, state: State) -> None:
        self._probe = None
        self.state = state
