"""The circuit breaker, with a clock that stands until a test moves it."""

import pytest

from knowledge.breaker import OPEN_S, WINDOW_CALLS, WINDOW_S, Breaker, State
from services.knowledge.tests.fakes import FakeClock


def opened(clock: FakeClock) -> Breaker:
    """A breaker that five failures have opened."""
    breaker = Breaker(clock)
    for _ in range(5):
        breaker.failed()
    return breaker


def test_the_numbers_of_the_design() -> None:
    """Last 20 outcomes, 30 s, open for 2 s."""
    assert (WINDOW_CALLS, WINDOW_S, OPEN_S) == (20, 30.0, 2.0)


def test_four_failures_do_not_open_it_and_the_fifth_does() -> None:
    """At least five failures are needed."""
    breaker = Breaker(FakeClock())
    for _ in range(4):
        breaker.failed()
    assert breaker.allows()
    breaker.failed()
    assert breaker.state is State.OPEN
    assert not breaker.allows()


@pytest.mark.parametrize(("successes", "state"), [(5, State.OPEN), (6, State.CLOSED)])
def test_failures_must_be_half_of_the_outcomes(successes: int, state: State) -> None:
    """Five failures of ten outcomes open it, five of eleven do not."""
    breaker = Breaker(FakeClock())
    for _ in range(successes):
        breaker.succeeded()
    for _ in range(5):
        breaker.failed()
    assert breaker.state is state


def test_only_the_last_twenty_outcomes_count() -> None:
    """Successes from before the last twenty outcomes do not keep it closed."""
    breaker = Breaker(FakeClock())
    for _ in range(100):
        breaker.succeeded()
    for _ in range(9):
        breaker.failed()
    assert breaker.state is State.CLOSED
    breaker.failed()
    assert breaker.state is State.OPEN


def test_outcomes_older_than_the_window_do_not_count() -> None:
    """Four failures of more than 30 s ago and one now are one failure."""
    clock = FakeClock()
    breaker = Breaker(clock)
    for _ in range(4):
        breaker.failed()
    clock.advance(WINDOW_S + 0.1)
    breaker.failed()
    assert breaker.state is State.CLOSED


def test_it_stays_open_for_two_seconds_then_lets_one_probe_through() -> None:
    """Before two seconds nothing goes through, after them exactly one call."""
    clock = FakeClock()
    breaker = opened(clock)
    clock.advance(OPEN_S - 0.01)
    assert not breaker.allows()
    clock.advance(0.01)
    assert breaker.allows()
    assert breaker.state is State.HALF_OPEN
    assert not breaker.allows()


def test_a_successful_probe_closes_it_and_forgets_the_past() -> None:
    """After a success the old failures are gone: four new ones do not open it."""
    clock = FakeClock()
    breaker = opened(clock)
    clock.advance(OPEN_S)
    breaker.allows()
    breaker.succeeded()
    for _ in range(4):
        breaker.failed()
    assert breaker.state is State.CLOSED


def test_one_failed_probe_opens_it_for_another_two_seconds() -> None:
    """The time counts from the probe's failure, and one failure is enough."""
    clock = FakeClock()
    breaker = opened(clock)
    clock.advance(OPEN_S)
    breaker.allows()
    clock.advance(1)
    breaker.failed()
    clock.advance(OPEN_S - 0.01)
    assert not breaker.allows()
    clock.advance(0.01)
    assert breaker.allows()


def test_a_probe_that_says_nothing_is_given_back() -> None:
    """A cancelled probe neither closes it nor keeps the next probe out for ever."""
    clock = FakeClock()
    breaker = opened(clock)
    clock.advance(OPEN_S)
    breaker.allows()
    breaker.released()
    assert breaker.allows()


def test_releasing_means_nothing_while_it_is_closed_or_open() -> None:
    """Outcomes that say nothing about health change no state."""
    clock = FakeClock()
    breaker = Breaker(clock)
    breaker.released()
    assert breaker.state is State.CLOSED
    breaker = opened(clock)
    breaker.released()
    assert not breaker.allows()


def test_changes_of_state_are_told_once_each() -> None:
    """The observer hears open, half-open and closed, and no state twice in a row."""
    clock, heard = FakeClock(), []
    breaker = Breaker(clock, heard.append)
    for _ in range(7):
        breaker.failed()
    clock.advance(OPEN_S)
    breaker.allows()
    breaker.succeeded()
    breaker.succeeded()
    assert heard == [State.OPEN, State.HALF_OPEN, State.CLOSED]
