"""A small model first, on two scorers without a model: when it is asked, what comes of its order, and that it breaks no promise."""

import asyncio
import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkit import Deadline, Encoder, NotServed, Tokens, usable_cpus
from reranker import cascade
from reranker.backlog import PROMISED_PAIRS, Backlog, Job, Task
from reranker.cache import PassageCache
from reranker.cost import CostModel
from reranker.model import STALE_S, Model
from reranker.outcome import Outcome, Scores
from reranker.scheduler import Scheduler
from reranker.scorer import LateInteractionScorer, Pair, Scorer
from reranker.settling import Settling
from reranker.warmup import warm_up
from services.reranker.tests.bench import LIMIT_S, Bench, Counts, Held

Make = Callable[..., Bench]

EIGHT = tuple("abcdefgh")
BEST_LAST = {name: float(place) for place, name in enumerate(EIGHT)}
NOTHING = np.zeros(0, np.int64)
PAIR = Pair("", Tokens(NOTHING, NOTHING, NOTHING.astype(np.bool_), truncated=False), truncated=False)
KEYS = itertools.count()


def by(scores: dict[str, float]) -> Callable[[str, str], float]:
    """Score a document by its name."""
    return lambda _, document: scores[document]


def told(outcome: Outcome) -> tuple[str, set[str]]:
    """The names of the scored of EIGHT, and the reasons of the others."""
    return "".join(EIGHT[each.index] for each in outcome.scored), {each.reason for each in outcome.unscored}


def slow(bench: Make, small: Callable[[str, str], float] | None = None, **options: Any) -> Bench:
    """A large model that takes a second a pair, and a small one that takes 50 ms."""
    return bench(
        **{"small": small or by(BEST_LAST), "seconds_per_token": 1.0, "small_seconds_per_token": 0.05, **options},
    )


async def test_short_of_time_the_best_go_first(bench: Make) -> None:
    """All are scored by the small model, then the large one takes them in its order, as many as there is time for."""
    made = slow(bench)
    outcome = await made.rank(*EIGHT, left_s=4.2, partial=True)
    assert made.small.runs == list(EIGHT)
    assert made.scorer.runs == ["h", "g", "f"]
    assert told(outcome) == ("fgh", {"deadline"})
    assert made.scheduler.waiting == 0


async def test_small_scores_stay_inside(bench: Make) -> None:
    """The answer and the counts of its passages are the large model's; the small model's runs are counted as its own."""
    made = slow(bench)
    outcome = await made.rank(*EIGHT, left_s=4.2, partial=True)
    assert [each.raw for each in outcome.scored] == [0.0, 0.0, 0.0]  # words in common with the query: none
    assert (made.counts.runs, made.counts.outcomes.count("scored"), made.counts.outcomes.count("deadline")) == (3, 3, 5)
    assert (made.small_counts.runs, made.small_counts.outcomes) == (8, [])


@pytest.mark.parametrize(("left_s", "partial"), [(30.0, True), (30.0, False), (4.2, False)])
async def test_the_small_model_is_not_asked_without_need(bench: Make, left_s: float, partial: bool) -> None:
    """Where all fit it would only cost; where all are wanted no order helps."""
    made = slow(bench)
    outcome = await made.rank(*EIGHT, left_s=left_s, partial=partial)
    assert made.small.runs == []
    assert len(outcome.scored) == (8 if left_s == 30 else 0)


async def test_without_a_small_model_nothing_changes(bench: Make) -> None:
    """The order given."""
    made = bench(seconds_per_token=1.0)
    assert told(await made.rank(*EIGHT, left_s=4.2, partial=True)) == ("abcd", {"deadline"})


async def test_ties_keep_the_order_given_and_what_has_no_small_score_is_last(bench: Make) -> None:
    """A pair that breaks the small model fails nothing."""
    made = slow(bench, by({**dict.fromkeys(EIGHT, 1.0), "a": math.nan, "f": 2.0}))
    outcome = await made.rank(*EIGHT, left_s=4.2, partial=True)
    assert made.scorer.runs == ["f", "b", "c"]
    assert told(outcome) == ("bcf", {"deadline"})


async def test_a_small_model_that_is_too_dear_is_left_out(bench: Make) -> None:
    """Eight runs of 0.15 s are more than a fifth of 4.2 s; of 8 s they are less."""
    made = slow(bench, small_seconds_per_token=0.15)
    assert told(await made.rank(*EIGHT, left_s=4.2, partial=True)) == ("abcd", {"deadline"})
    assert made.small.runs == []
    assert told(await made.rank(*EIGHT, left_s=8.0, partial=True, query="another")) == ("cdefgh", {"deadline"})
    assert made.small.runs == list(EIGHT)


async def test_a_small_model_that_was_too_dear_is_tried_again(bench: Make) -> None:
    """After a pause one of its pairs runs, for nobody; from then on it is asked as ever."""
    made = slow(bench)
    for _ in range(40):
        made.small_model.cost.learn(1, 1.0)
    assert told(await made.rank(*EIGHT, left_s=4.2, partial=True)) == ("abcd", {"deadline"})
    assert made.small.runs == []
    made.scorer.clock.advance(STALE_S)
    assert told(await made.rank(*EIGHT, left_s=4.2, partial=True, query="second")) == ("abcd", {"deadline"})
    assert made.small.runs == ["a"]
    assert told(await made.rank(*EIGHT, left_s=4.2, partial=True, query="third")) == ("fgh", {"deadline"})
    assert made.scheduler.waiting == 0


async def test_a_busy_service_leaves_the_small_model_out(bench: Make) -> None:
    """What others were promised leaves no time for it, but for two pairs."""
    held = Held()
    made = slow(bench, small=by(BEST_LAST), score=held)
    strict = made.rank("x", "y", left_s=2.5)
    await held.begun()
    partial = made.rank(*EIGHT, left_s=7.0, partial=True)
    await made.until(lambda: made.scheduler.waiting == 9)
    held.release.set()
    assert len((await strict).scored) == 2
    assert told(await partial)[0].startswith("ab")
    assert made.small.runs == []


async def test_who_cannot_be_served_is_sent_away_before_anything_is_run(bench: Make) -> None:
    """By neither model."""
    held = Held()
    made = slow(bench, score=held)
    running = made.rank(*"stuvwxyz", left_s=9.5)
    await held.begun()
    with pytest.raises(NotServed, match="busy"):
        await made.rank(*EIGHT, left_s=7.0, partial=True)
    held.release.set()
    assert len((await running).scored) == 8
    assert made.small.runs == []


async def test_a_caller_that_goes_away_while_the_small_model_runs(bench: Make) -> None:
    """Its run is ended, nothing waits any more, and the large model never begins."""
    held = Held()
    made = slow(bench, held, small_seconds_per_token=0.01)
    held.scorer = made.small
    asking = made.rank(*EIGHT, left_s=4.2, partial=True)
    await held.begun()
    assert made.scheduler.waiting == 15
    asking.cancel()
    await asyncio.wait({asking})
    assert made.small.stops["a"].requested
    assert made.scheduler.waiting == 0
    held.release.set()
    assert len((await made.rank("z", query="another")).scored) == 1
    assert (made.small.runs, made.scorer.runs) == (["a"], ["z"])


async def test_a_small_model_that_is_late_is_ended_at_its_share(bench: Make) -> None:
    """The large one takes the order given in the time that is left; on a real clock here."""
    held = Held()
    made = bench(small=held, seconds_per_token=0.5, small_seconds_per_token=0.001)
    held.scorer = made.small
    outcome = await made.rank(*EIGHT, left_s=1.4, partial=True)
    assert made.small.stops["a"].requested
    assert told(outcome) == ("ab", {"deadline"})


async def test_a_bug_in_the_small_model_is_an_error(bench: Make) -> None:
    """As one in the large model is."""

    def score(_: str, __: str) -> float:
        raise LookupError("bug")

    made = slow(bench, score)
    with pytest.raises(LookupError):
        await made.rank(*EIGHT, left_s=4.2, partial=True)
    assert made.scorer.runs == []
    assert made.scheduler.waiting == 0


@pytest.mark.parametrize("workers", [1, 2, 3])
async def test_what_is_told_does_not_depend_on_the_workers(bench: Make, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    """The third in the small model's order never ends: two are told, whatever others have been scored beside it."""
    release = threading.Event()

    def score(_: str, document: str) -> float:
        if document == "f":
            release.wait(LIMIT_S)
        return 1.0

    made = bench(score, small=by(BEST_LAST), workers=workers, seconds_per_token=0.3, small_seconds_per_token=0.001)
    monkeypatch.setattr(made.scorer.clock, "advance", lambda _: None)  # real time alone passes
    outcome = await made.rank(*EIGHT, left_s=0.95, partial=True)
    release.set()
    assert told(outcome) == ("gh", {"deadline"})


async def test_small_scores_are_remembered_apart(bench: Make) -> None:
    """The same question again runs no small pair, and takes no score of one model for the other's."""
    made = slow(bench, cache=100)
    first = await made.rank(*EIGHT, left_s=4.2, partial=True)
    again = await made.rank(*EIGHT, left_s=4.2, partial=True)
    assert made.small.runs == list(EIGHT)
    assert made.scorer.runs == list("hgfedcb")  # the three that are known cost nothing
    assert (told(first), told(again)) == (("fgh", {"deadline"}), ("bcdefgh", {"deadline"}))


async def test_the_top_is_settled_in_the_order_of_the_small_model(bench: Make) -> None:
    """In the order given `b` would have settled it."""
    made = slow(bench, score=by({**dict.fromkeys(EIGHT, 0.0), "a": 1.0, "h": 9.0}))
    outcome = await made.rank(*EIGHT, left_s=4.2, partial=True, settling=Settling(1, 1))
    assert made.scorer.runs == ["h", "g"]
    assert told(outcome) == ("gh", {"settled"})


async def test_pairs_that_come_while_the_order_is_unknown_end_nothing(bench: Make) -> None:
    """Another request brings two of them, which would settle the top in the order given."""
    held = Held()

    def small(query: str, document: str) -> float:
        return BEST_LAST[document] * (held(query, document) if document == "h" else 1.0)

    large = by({**dict.fromkeys(EIGHT, 0.0), "a": 1.0, "h": 5.0})
    made = bench(large, small=small, workers=2, seconds_per_token=1.0, small_seconds_per_token=0.01)
    asking = made.rank(*EIGHT, left_s=4.3, partial=True, settling=Settling(1, 1))
    await held.begun()
    assert len((await made.rank("a", "b", left_s=100.0)).scored) == 2
    assert made.counts.lookups.count("joined") == 2
    held.release.set()
    assert told(await asking) == ("gh", {"settled"})


@pytest.mark.models
async def test_the_passage_that_the_small_model_finds_is_scored_although_it_came_last(minilm: Scorer, e5: Encoder) -> None:
    """Real weights, half of the time. The small model has read the passages before, for another question: that makes it cheap."""
    cores, clock = usable_cpus().count, time.monotonic
    large, small = (
        Model(scorer, CostModel(), Counts(), clock, (name,))
        for name, scorer in (("large", minilm), ("small", LateInteractionScorer(e5, PassageCache(64_000_000))))
    )
    for model in (large, small):
        warm_up(model.scorer, model.cost, cores)
    trains = "Platform {0}: the train of {0} minutes past noon is late, and the next one does not wait for it. "
    passages = [trains.format(number) * 16 for number in range(30)] + ["Water a monstera once a week, when its soil has dried out. " * 24]
    question = "How often does a monstera need water?"

    async def ranked(model: Model, query: str, left_s: float, order: Model | None = None) -> Outcome:
        scheduler = Scheduler(model, cores, clock, small=order)
        try:
            return await scheduler.rank(query, passages, Deadline(clock() + left_s, clock), allow_partial=True)
        finally:
            scheduler.close()

    await ranked(small, "When does the train leave?", 60)
    bound = large.bind(question)
    half_s = 0.5 * sum(bound.cost_s(bound.pair(passage)) for passage in passages) / cores
    as_given, best_first = await ranked(large, question, half_s), await ranked(large, question, half_s, small)
    assert [each.index for each in as_given.scored] == list(range(len(as_given.scored)))
    assert 0 < len(best_first.scored) < len(passages)
    assert best_first.scored[-1].index == 30
    assert best_first.scored[-1].raw == max(each.raw for each in best_first.scored)


def _task(cost_s: float) -> Task:
    return Task(str(next(KEYS)).encode(), _Query(), PAIR, cost_s)  # type: ignore[arg-type]


class _Query:
    """Of a model that has just run."""

    model = type("Fresh", (), {"stale": False})


def _job(now: float, deadline: float, costs: Sequence[float]) -> Job:
    job = Job(now, deadline, Scores(["text"] * len(costs), lambda _: None))
    for index, cost in enumerate(costs):
        job.join(_task(cost), index)
    return job


def test_the_dearest_are_promised_until_the_order_is_known() -> None:
    """Then the first in order, which cannot cost more."""
    backlog = Backlog(1, lambda task: task.cost_s)
    first, job = _job(0, 10, [0.1] * 4), _job(0, 10, [1.0, 3.0, 2.0, 5.0])
    assert cascade.lead(backlog, first, job, 2, 0.0)
    assert job.promised_s == 8.0
    assert job.held
    assert backlog.seconds(0.0) == pytest.approx(11.4)
    assert backlog.next(0.0)[0] in first.running
    backlog.drop(first)
    first.scores.add(2, 1.0, 1, truncated=False)
    cascade.follow(first, job)  # not all of them came
    assert [task.cost_s for task in job.waiting] == [1.0, 3.0, 2.0, 5.0]
    assert (job.promised, job.promised_s, job.held) == (2, 4.0, False)


def test_a_promise_that_would_break_leaves_the_small_model_out() -> None:
    """The small pairs would fit, but not the two dearest pairs behind them; the request itself is as it was."""
    backlog = Backlog(1, lambda task: task.cost_s)
    first, job = _job(0, 6, [0.1] * 4), _job(0, 6, [1.0, 3.0, 2.0, 3.0])
    assert not cascade.lead(backlog, first, job, 2, 0.0)
    assert backlog.tasks == {}
    assert [task.cost_s for task in job.waiting] == [1.0, 3.0, 2.0, 3.0]
    assert not job.held


def test_nothing_is_started_that_would_break_the_promise_of_one_that_is_held() -> None:
    """While its small pair runs on one worker, the other takes nothing long."""
    backlog = Backlog(2, lambda task: task.cost_s)
    first, job = _job(0, 1.25, [0.1]), _job(0, 1.25, [1.0, 1.0])
    assert cascade.lead(backlog, first, job, 2, 0.0)
    assert backlog.next(0.0)[0] in first.running
    backlog.add(_job(0, 100, [9.0]))
    assert backlog.next(0.0) == (None, [])
    short = _job(0, 100, [0.02])
    backlog.add(short)
    assert backlog.next(0.0)[0] in short.running


ARRIVALS = st.lists(
    st.tuples(
        st.floats(0, 0.5),  # seconds since the one before
        st.floats(0.3, 3.0),  # its deadline, from its arrival
        st.lists(st.floats(0.02, 0.4), min_size=2, max_size=12),
        st.permutations(range(12)),  # how the small model ranks them
    ),
    min_size=1,
    max_size=20,
)


class _Play:
    """Workers that take as long as was predicted."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.backlog = Backlog(workers, lambda task: task.cost_s)
        self.ends: dict[Task, float] = {}
        self._running: list[tuple[float, int, Task]] = []
        self._leading: list[tuple[Job, Job, Sequence[int]]] = []

    def ask(self, now: float, left: float, costs: Sequence[float], ranks: Sequence[int]) -> tuple[Job, int]:
        """The request, and how many pairs it was promised."""
        job, first = _job(now, now + left, costs), _job(now, now + left, [cost / 10 for cost in costs])
        fitting = self.backlog.fits_idle(job, now)
        pairs = min(fitting, PROMISED_PAIRS)
        if fitting < len(costs) and pairs and cascade.lead(self.backlog, first, job, pairs, now):
            self._leading.append((first, job, ranks))
        else:
            job.promise(pairs)
            if not pairs or self.backlog.late_by(job, now) > 0:
                return job, 0
            self.backlog.add(job)
        self._start(now)
        return job, pairs

    def run_until(self, now: float) -> None:
        """Let time pass."""
        while self._running and self._running[0][0] <= now:
            clock, _, task = heapq.heappop(self._running)
            self.ends[task] = clock
            self.backlog.end(task)
            self._start(clock)

    def _start(self, clock: float) -> None:
        for first, job, ranks in [each for each in self._leading if not each[0].waiting and not each[0].running]:
            self._leading.remove((first, job, ranks))
            self.backlog.drop(first)
            for index in range(len(first.scores.documents)):
                first.scores.add(index, -float(ranks[index]), 1, truncated=False)
            cascade.follow(first, job)
        while len(self._running) < self.workers and (task := self.backlog.next(clock)[0]) is not None:
            heapq.heappush(self._running, (clock + task.cost_s, next(KEYS), task))


@given(ARRIVALS, st.integers(1, 3))
def test_every_promise_is_kept_with_a_small_model(arrivals: list[tuple[float, float, list[float], list[int]]], workers: int) -> None:
    """Where runs take what was predicted; on several workers the large model waits for the last small run, and so much it may be late."""
    play, now = _Play(workers), 0.0
    promised: list[tuple[Job, int, list[Task]]] = []
    for wait, left, costs, ranks in arrivals:
        now += wait
        play.run_until(now)
        job, pairs = play.ask(now, left, costs, ranks)
        promised.append((job, pairs, list(job.waiting) + list(job.running)))
    play.run_until(now + 100)
    allowed = 1e-6 if workers == 1 else 0.04
    for job, pairs, tasks in promised:
        assert sum(play.ends.get(task, math.inf) <= job.deadline + allowed for task in tasks) >= pairs
