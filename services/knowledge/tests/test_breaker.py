"""The circuit breaker, with a clock that stands until a test moves it."""

import pytest

from knowledge.breaker import OPEN_S, WINDOW_CALLS, WINDOW_S, Breaker, Permit, State
from services.knowledge.tests.fakes import FakeClock


def admitted(breaker: Breaker) -> Permit:
    """A permit, where the breaker must give one."""
    permit = breaker.admit()
    assert permit is not None
    return permit


def outcomes(breaker: Breaker, *good: bool) -> None:
    """So many calls with these outcomes."""
    for one in good:
        permit = admitted(breaker)
        (breaker.succeeded if one else breaker.failed)(permit)


def opened(clock: FakeClock) -> Breaker:
    """A breaker that five failures have opened."""
    breaker = Breaker(clock)
    outcomes(breaker, *[False] * 5)
    assert breaker.state is State.OPEN
    return breaker


def half_open(clock: FakeClock) -> tuple[Breaker, Permit]:
    """A breaker with its probe under way."""
    breaker = opened(clock)
    clock.advance(OPEN_S)
    return breaker, admitted(breaker)


def test_the_numbers_of_the_design() -> None:
    """Last 20 outcomes, 30 s, open for 2 s."""
    assert (WINDOW_CALLS, WINDOW_S, OPEN_S) == (20, 30.0, 2.0)


def test_four_failures_do_not_open_it_and_the_fifth_does() -> None:
    """At least five failures are needed."""
    breaker = Breaker(FakeClock())
    outcomes(breaker, *[False] * 4)
    assert breaker.state is State.CLOSED
    outcomes(breaker, False)
    assert breaker.state is State.OPEN
    assert breaker.admit() is None


@pytest.mark.parametrize(("successes", "state"), [(5, State.OPEN), (6, State.CLOSED)])
def test_failures_must_be_half_of_the_outcomes(successes: int, state: State) -> None:
    """Five failures of ten outcomes open it, five of eleven do not."""
    breaker = Breaker(FakeClock())
    outcomes(breaker, *[True] * successes, *[False] * 5)
    assert breaker.state is state


def test_only_the_last_twenty_outcomes_count() -> None:
    """Successes from before the last twenty outcomes do not keep it closed."""
    breaker = Breaker(FakeClock())
    outcomes(breaker, *[True] * 100, *[False] * 9)
    assert breaker.state is State.CLOSED
    outcomes(breaker, False)
    assert breaker.state is State.OPEN


def test_outcomes_older_than_the_window_do_not_count() -> None:
    """Four failures of more than 30 s ago and one now are one failure; at exactly 30 s they still count."""
    for seconds, state in ((WINDOW_S + 0.1, State.CLOSED), (WINDOW_S, State.OPEN)):
        clock = FakeClock()
        breaker = Breaker(clock)
        outcomes(breaker, *[False] * 4)
        clock.advance(seconds)
        outcomes(breaker, False)
        assert breaker.state is state


def test_it_stays_open_for_two_seconds_then_lets_one_probe_through() -> None:
    """Before two seconds nothing goes through, after them exactly one call."""
    clock = FakeClock()
    breaker = opened(clock)
    clock.advance(OPEN_S - 0.01)
    assert breaker.admit() is None
    clock.advance(0.01)
    assert breaker.admit() is not None
    assert breaker.state is State.HALF_OPEN
    clock.advance(100)
    assert breaker.admit() is None


def test_a_successful_probe_closes_it_and_forgets_the_past() -> None:
    """After a success the old failures are gone: four new ones do not open it."""
    breaker, probe = half_open(FakeClock())
    breaker.succeeded(probe)
    outcomes(breaker, *[False] * 4)
    assert breaker.state is State.CLOSED
    outcomes(breaker, False)
    assert breaker.state is State.OPEN


def test_one_failed_probe_opens_it_for_another_two_seconds() -> None:
    """The time counts from the probe's failure, and one failure is enough."""
    clock = FakeClock()
    breaker, probe = half_open(clock)
    clock.advance(1)
    breaker.failed(probe)
    clock.advance(OPEN_S - 0.01)
    assert breaker.admit() is None
    clock.advance(0.01)
    assert breaker.admit() is not None


def test_a_probe_that_says_nothing_is_given_back() -> None:
    """A cancelled probe neither closes it nor keeps the next probe out for ever."""
    breaker, probe = half_open(FakeClock())
    breaker.released(probe)
    assert breaker.state is State.OPEN
    assert breaker.admit() is not None
    assert breaker.admit() is None


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "released"])
def test_a_call_from_before_the_opening_decides_nothing_after_it(outcome: str) -> None:
    """Open, and with a probe under way: what an old call says neither closes it, nor opens it longer, nor frees the probe's place."""
    clock = FakeClock()
    breaker = Breaker(clock)
    old = [admitted(breaker), admitted(breaker)]
    outcomes(breaker, *[False] * 5)
    clock.advance(OPEN_S - 0.5)
    getattr(breaker, outcome)(old[0])
    assert breaker.state is State.OPEN
    clock.advance(0.5)
    probe = admitted(breaker)
    getattr(breaker, outcome)(old[1])
    assert breaker.state is State.HALF_OPEN
    assert breaker.admit() is None
    breaker.succeeded(probe)
    assert breaker.state is State.CLOSED


def test_releasing_a_call_means_nothing_while_it_is_closed() -> None:
    """Outcomes that say nothing about health count for nothing: five failures among many of them still open it."""
    breaker = Breaker(FakeClock())
    for _ in range(50):
        breaker.released(admitted(breaker))
    outcomes(breaker, *[False] * 5)
    assert breaker.state is State.OPEN
