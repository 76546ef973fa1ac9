"""The policy alone, with numbers instead of pairs, and played through on workers that exist only here."""

import heapq
import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkit import Tokens
from reranker.backlog import PROMISED_PAIRS, Backlog, Job, Task, finishes
from reranker.outcome import Scores
from reranker.scorer import Pair

NOTHING = np.zeros(0, np.int64)
PAIR = Pair("", Tokens(NOTHING, NOTHING, NOTHING.astype(np.bool_), truncated=False), truncated=False)
KEYS = itertools.count()


def _task(cost_s: float, key: bytes | None = None) -> Task:
    return Task(key or str(next(KEYS)).encode(), None, PAIR, cost_s)  # type: ignore[arg-type]


def _job(deadline: float, costs: Sequence[float | Task], *, arrived: float = 0.0, promise: int | None = None) -> Job:
    job = Job(arrived, deadline, Scores([], lambda _: None))
    for index, cost in enumerate(costs):
        job.join(cost if isinstance(cost, Task) else _task(cost), index)
    job.promise(len(costs) if promise is None else promise)
    return job


def _backlog(*jobs: Job, workers: int = 1) -> Backlog:
    backlog = Backlog(workers, lambda task: task.cost_s)
    for job in jobs:
        backlog.add(job)
    return backlog


def _order(backlog: Backlog, names: dict[Job, str], now: float = 0.0) -> str:
    """Whose pairs run, one after another on one worker."""
    order = ""
    while (task := backlog.next(now)[0]) is not None:
        order += names[next(iter(task.waiters))]
        now += task.cost_s
        backlog.end(task)
    return order


def test_a_short_request_passes_a_long_one() -> None:
    """A hundred pairs that came first, and five: the five wait for none of them."""
    long, short = _job(100, [0.1] * 100), _job(101, [0.1] * 5, arrived=1.0)
    assert _order(_backlog(long, short), {long: "l", short: "s"}, now=1.0) == "s" * 5 + "l" * 100


def test_what_came_first_is_finished_first_among_equals() -> None:
    """Not turn by turn, which would end both late."""
    first, second = _job(100, [0.1] * 3), _job(100, [0.1] * 3, arrived=0.01)
    assert _order(_backlog(second, first), {first: "1", second: "2"}, now=0.01) == "111222"


def test_a_long_request_is_not_overtaken_for_ever() -> None:
    """Short ones that keep coming pass it only for so many times its own work."""
    long = _job(1000, [1.0] * 10)
    backlog, now, ended = _backlog(long), 0.0, 0.0
    for _ in range(200):
        if not long.waiting:
            ended = now
            break
        backlog.add(_job(1000, [1.0], arrived=now))
        task, _ = backlog.next(now)
        assert task is not None
        now += 1.0
        backlog.end(task)
    assert 80 <= ended <= 100


def test_a_promise_goes_before_a_short_request() -> None:
    """The long one would be late if it let the other pass."""
    long, short = _job(10.5, [1.0] * 10), _job(100, [1.0])
    assert _order(_backlog(long, short), {long: "l", short: "s"}) == "l" * 10 + "s"


def test_what_was_not_promised_gives_way() -> None:
    """Of a partial request only the first pairs are sure."""
    partial, whole = _job(8.5, [1.0] * 8, promise=2), _job(10, [1.0] * 7, arrived=1.0)
    assert _order(_backlog(partial, whole), {partial: "p", whole: "w"}, now=1.0).count("w") == 7


def test_a_pair_that_would_end_too_late_closes_its_request() -> None:
    """And those behind it with it, a shorter one too."""
    job = _job(3.5, [2.0, 2.0, 0.1])
    backlog = _backlog(job)
    first, closed = backlog.next(0)
    assert first is not None
    assert closed == []
    backlog.end(first)
    assert backlog.next(2.0) == (None, [job])
    assert backlog.waiting == 0


def test_a_shared_pair_runs_once_and_for_both() -> None:
    """With the indices that it has in each."""
    shared = _task(1.0, b"same")
    one, two = _job(10, [shared, 1.0]), _job(10, [1.0, shared])
    backlog = _backlog(one, two)
    assert backlog.waiting == 3
    task, _ = backlog.next(0)
    assert task is shared
    assert backlog.end(task) == {one: [0], two: [1]}
    assert (len(one.waiting), len(two.waiting)) == (1, 1)


def test_a_run_ends_only_when_nobody_waits_for_it() -> None:
    """Then at once, and nobody can join it any more."""
    shared = _task(1.0, b"same")
    one, two = _job(10, [shared]), _job(10, [shared])
    backlog = _backlog(one, two)
    assert backlog.next(0)[0] is shared
    backlog.drop(one)
    assert not shared.stop.requested
    assert backlog.tasks == {b"same": shared}
    backlog.drop(two)
    assert shared.stop.requested
    assert backlog.tasks == {}


@pytest.mark.parametrize(("deadline", "late"), [(3.0, 1.3), (4.4, 0.04), (4.5, 0.0)])
def test_all_work_with_an_earlier_deadline_stands_in_front(deadline: float, late: float) -> None:
    """Not only what was promised of it, and a tenth of the time is kept free; the wait that is told is enough."""
    ahead = _job(2.5, [1.0] * 3, promise=2)
    backlog, asking = _backlog(ahead), _job(deadline, [1.0])
    assert backlog.late_by(asking, 0.0) == pytest.approx(late)


def test_nobody_is_let_in_at_the_cost_of_a_promise() -> None:
    """An earlier deadline would go first, and the one that was promised would be late: it is asked to come back after it."""
    promised = _job(5.5, [1.0] * 5)
    backlog = _backlog(promised)
    assert backlog.late_by(_job(2.0, [1.0]), 0.0) == pytest.approx(6.0)
    assert backlog.late_by(_job(2.0, [0.5]), 0.0) == 0.0


def test_a_request_that_is_late_anyway_keeps_nobody_out() -> None:
    """Its promise is broken already."""
    assert _backlog(_job(1.0, [5.0])).late_by(_job(20.0, [1.0]), 0.0) == 0.0


def test_what_fits_an_idle_service() -> None:
    """Two pairs side by side, then the third."""
    assert _backlog(workers=2).fits_idle(_job(2.5, [1.0, 2.0, 1.0, 1.0]), 0.0) == 3


def test_finishes_are_those_of_the_first_free_worker() -> None:
    """Two workers, one busy until 3."""
    assert finishes([0.0, 3.0], [[1.0, 1.0], [], [2.0]]) == [2.0, -np.inf, 4.0]


ARRIVALS = st.lists(
    st.tuples(
        st.floats(0, 0.5),  # seconds since the one before
        st.floats(0.3, 3.0),  # its deadline, from its arrival
        st.lists(st.floats(0.02, 0.4), min_size=1, max_size=12),
        st.booleans(),  # whether a partial answer will do
    ),
    min_size=1,
    max_size=25,
)


@given(ARRIVALS, st.integers(1, 3))
def test_every_promise_is_kept(arrivals: list[tuple[float, float, list[float], bool]], workers: int) -> None:
    """Whoever comes, and however many are sent away: where runs take what was predicted, all that was promised ends in time."""
    backlog = Backlog(workers, lambda task: task.cost_s)
    ends: dict[Task, float] = {}
    promised: list[tuple[Job, list[Task]]] = []
    running: list[tuple[float, int, Task]] = []

    def run_until(now: float) -> None:
        clock = 0.0
        while running and running[0][0] <= now:
            clock, _, task = heapq.heappop(running)
            ends[task] = clock
            backlog.end(task)
            start(clock)

    def start(clock: float) -> None:
        while len(running) < workers and (task := backlog.next(clock)[0]) is not None:
            heapq.heappush(running, (clock + task.cost_s, next(KEYS), task))

    now = 0.0
    for wait, left, costs, partial in arrivals:
        now += wait
        run_until(now)
        job = _job(now + left, costs, arrived=now, promise=0)
        fitting = backlog.fits_idle(job, now)
        if fitting < len(costs) and not partial:
            continue
        job.promise(min(fitting, PROMISED_PAIRS) if partial else len(costs))
        if backlog.late_by(job, now) > 0:
            continue
        promised.append((job, [task for task, sure in job.waiting.items() if sure]))
        backlog.add(job)
        start(now)
    run_until(now + 100)
    assert all(ends[task] <= job.deadline + 1e-6 for job, tasks in promised for task in tasks)
