"""One deadline a request, handed on as time left."""

from knowledge.deadline import Deadline
from services.knowledge.tests.fakes import FakeClock


def test_time_left_runs_down_and_stops_at_zero() -> None:
    """Never negative, however late it is."""
    clock = FakeClock()
    deadline = Deadline.after(2.0, clock)
    assert deadline.left() == 2.0
    clock.advance(1.5)
    assert deadline.left() == 0.5
    clock.advance(5)
    assert deadline.left() == 0.0


def test_a_stage_gets_the_smaller_of_its_cap_and_the_time_left() -> None:
    """Caps are never summed."""
    clock = FakeClock()
    deadline = Deadline.after(8.0, clock)
    assert (deadline.cap(5.0), deadline.cap(27.0)) == (5.0, 8.0)
    clock.advance(6)
    assert deadline.cap(5.0) == 2.0
