"""The scheduler alone: turns, failures, what waits."""

import asyncio
import threading

import pytest

from modelkit import Deadline
from reranker.fake import FakeScorer, ManualClock
from reranker.pace import Pace
from reranker.scheduler import Scheduler


class _Counts:
    """Counts pairs by outcome."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def pair(self, outcome: str, seconds: float | None = None) -> None:
        """Remember."""
        del seconds
        self.outcomes.append(outcome)


def _scheduler(scorer: FakeScorer, workers: int = 1) -> tuple[Scheduler, _Counts]:
    counts = _Counts()
    return Scheduler(scorer, workers, Pace(scorer.seconds_per_token), counts, scorer.clock), counts


async def test_requests_take_turns_pair_by_pair() -> None:
    """A long request does not keep a short one waiting to its end."""
    started, first = threading.Event(), threading.Event()

    def score(*_: str) -> float:
        started.set()
        return float(first.wait(20))

    scorer = FakeScorer(ManualClock(), score=score)
    scheduler, _ = _scheduler(scorer)
    deadline = Deadline(scorer.clock() + 30, scorer.clock)
    long = asyncio.create_task(scheduler.rank("q", [f"long {n}" for n in range(6)], deadline))
    assert await asyncio.to_thread(started.wait, 20)
    short = asyncio.create_task(scheduler.rank("q", ["short 0", "short 1"], deadline))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert scheduler.waiting == 7
    first.set()
    await asyncio.gather(long, short)
    assert scorer.runs.index("short 1") < scorer.runs.index("long 5")
    assert scheduler.waiting == 0
    scheduler.close()


async def test_several_workers_score_everything_once() -> None:
    """Whatever the order of the threads."""
    scorer = FakeScorer(ManualClock())
    scheduler, counts = _scheduler(scorer, workers=4)
    documents = [f"word{n}" for n in range(50)] + [" "]
    outcome = await scheduler.rank("q", documents, Deadline(scorer.clock() + 30, scorer.clock))
    assert [scored.index for scored in outcome.scored] == list(range(50))
    assert sorted(scorer.runs) == sorted(documents[:50])
    assert (counts.outcomes.count("scored"), counts.outcomes.count("empty")) == (50, 1)
    scheduler.close()


async def test_a_bug_in_a_run_is_an_error_and_not_a_time_out() -> None:
    """It is not mistaken for a slow model."""

    def score(*_: str) -> float:
        raise LookupError("bug")

    scorer = FakeScorer(ManualClock(), score=score)
    scheduler, _ = _scheduler(scorer, workers=2)
    with pytest.raises(LookupError):
        await scheduler.rank("q", ["a", "b"], Deadline(scorer.clock() + 30, scorer.clock))
    assert scheduler.waiting == 0
    scheduler.close()


async def test_a_deadline_that_has_passed_runs_nothing() -> None:
    """Not even the query."""
    scorer = FakeScorer(ManualClock())
    scheduler, counts = _scheduler(scorer)
    outcome = await scheduler.rank("q", ["a", "b"], Deadline(scorer.clock(), scorer.clock))
    assert not outcome.scored
    assert outcome.missed("deadline")
    assert counts.outcomes == ["deadline", "deadline"]
    scheduler.close()


async def test_the_backlog_is_told_in_seconds() -> None:
    """What waits, at the usual pace, over the workers."""
    scorer = FakeScorer(ManualClock())
    scheduler, _ = _scheduler(scorer)
    assert scheduler.backlog_s() == 0
    scheduler.close()


def test_the_pace_follows_what_it_sees() -> None:
    """The first run counts in full, later ones by a fifth; a little is added for safety."""
    pace = Pace(1.0)
    pace.learn(100, 1.0)
    assert pace.predict_s(200) == pytest.approx(2.2)
    assert pace.usual_s() == pytest.approx(1.0)
    for _ in range(60):
        pace.learn(50, 1.0)
    assert pace.predict_s(50) == pytest.approx(1.1, rel=1e-3)
    assert pace.usual_s() == pytest.approx(1.0, rel=1e-3)
