"""The scheduler alone, on a scorer without a model: turns, merging, the cache, deadlines, cancellation, what is refused."""

import asyncio
import math
import threading
import time
from collections.abc import Callable

import pytest

from modelkit import NotServed
from modelkit.session import RunFailed
from reranker.model import STALE_S
from services.reranker.tests.bench import LIMIT_S, Bench, Held

Make = Callable[..., Bench]


async def test_a_long_request_does_not_keep_a_short_one_waiting(bench: Make) -> None:
    """The short one goes before all but the pair that runs."""
    held = Held()
    made = bench(held)
    long = made.rank(*(f"long {n}" for n in range(100)))
    await held.begun()
    short = made.rank("short 0", "short 1")
    await made.until(lambda: made.scheduler.waiting == 101)
    held.release.set()
    await asyncio.gather(long, short)
    assert made.scorer.runs[:3] == ["long 0", "short 0", "short 1"]
    assert made.scheduler.waiting == 0


async def test_several_workers_score_everything_once(bench: Make) -> None:
    """Whatever the order of the threads."""
    made = bench(workers=4)
    documents = [f"word{n}" for n in range(50)]
    outcome = await made.rank(*documents, " ")
    assert [scored.index for scored in outcome.scored] == list(range(50))
    assert sorted(made.scorer.runs) == sorted(documents)
    assert (made.counts.outcomes.count("scored"), made.counts.outcomes.count("empty"), made.counts.runs) == (50, 1, 50)


async def test_a_bug_in_a_run_is_an_error_and_not_a_time_out(bench: Make) -> None:
    """For all that wait for that pair; the others of the request are dropped."""
    held = Held()

    def score(query: str, document: str) -> float:
        held(query, document)
        raise LookupError("bug")

    made = bench(score)
    both = [made.rank("a", "b"), made.rank("a")]
    await held.begun()
    await made.until(lambda: made.counts.lookups.count("joined") == 1)
    held.release.set()
    assert [type(each) for each in await asyncio.gather(*both, return_exceptions=True)] == [LookupError, LookupError]
    assert made.scorer.runs == ["a"]
    assert made.scheduler.waiting == 0


@pytest.mark.parametrize("partial", [True, False])
async def test_a_pair_that_the_runtime_refuses_has_no_score(bench: Make, partial: bool) -> None:
    """The others of the request have theirs, and nothing is remembered of it."""

    def score(_: str, document: str) -> float:
        if document == "bad":
            raise RunFailed("Fail")
        return math.nan if document == "nan" else 1.0

    made = bench(score, cache=10)
    outcome = await made.rank("good", "bad", "nan", "fine", partial=partial)
    assert [scored.index for scored in outcome.scored] == [0, 3]
    assert [(each.index, each.reason) for each in outcome.unscored] == [(1, "nan"), (2, "nan")]
    assert len(made.cache) == 2


async def test_a_deadline_that_has_passed_runs_nothing(bench: Make) -> None:
    """It is no overload either."""
    made = bench(seconds_per_token=0.1)
    outcome = await made.rank("a", "b", left_s=0, partial=True)
    assert not outcome.scored
    assert outcome.missed("deadline")
    assert made.counts.outcomes == ["deadline", "deadline"]
    assert made.scorer.runs == []


async def test_what_an_idle_service_could_not_do_is_not_begun(bench: Make) -> None:
    """All pairs are wanted and there is time for half of them: nothing is run, and nobody is told to come back."""
    made = bench(seconds_per_token=1.0)
    outcome = await made.rank("a", "b", "c", "d", left_s=2.5)
    assert made.scorer.runs == []
    assert [each.reason for each in outcome.unscored] == ["deadline"] * 4


@pytest.mark.parametrize("partial", [True, False])
async def test_predictions_that_are_too_dark_are_corrected(bench: Make, partial: bool) -> None:
    """Nothing is let in, so nothing is learned: after a pause one request may try, and from then on all is well."""
    made = bench(seconds_per_token=0.01)
    for _ in range(40):
        made.scheduler.model.cost.learn(1, 100.0)
    assert (await made.rank("a", "b", left_s=1, partial=partial)).missed("deadline")
    made.scorer.clock.advance(STALE_S + 1)
    assert len((await made.rank("a", "b", left_s=1, partial=partial)).scored) == 2
    assert len((await made.rank("c", "d", left_s=1, partial=partial)).scored) == 2


async def test_the_backlog_is_told_in_seconds(bench: Make) -> None:
    """Predicted, over the workers."""
    held = Held()
    made = bench(held, seconds_per_token=1.0)
    task = made.rank("a", "b", "c")
    await held.begun()
    assert made.scheduler.backlog_s() == pytest.approx(2.3, abs=0.2)  # the clock has passed the first already
    held.release.set()
    await task
    assert made.scheduler.backlog_s() == 0


async def test_who_cannot_be_served_in_time_is_told_when_to_come_back(bench: Make) -> None:
    """Before anything is done for him; and then he is served."""
    held = Held()
    made = bench(held, seconds_per_token=1.0)
    running = made.rank(*"abcdefgh", left_s=9.5)
    await held.begun()
    made.scorer.clock.now = 1000.0
    with pytest.raises(NotServed, match="busy") as caught:
        await made.rank("late", left_s=10.5)
    # Eight pairs and its own, each 1.1 s with the margin: 9.9 s, where a tenth of 10.5 s is kept free.
    assert caught.value.retry_after_ms == pytest.approx(450, abs=1)
    assert "late" not in made.scorer.stops
    made.scorer.clock.now = 1000.0 + caught.value.retry_after_ms / 1000
    served = made.rank("late", left_s=10.5)
    await made.until(lambda: made.scheduler.waiting == 8)
    held.release.set()
    assert len((await running).scored) == 8
    assert (await served).scored


async def test_two_pairs_in_time_are_enough_for_a_partial_answer(bench: Make) -> None:
    """Where all are wanted the same request is sent away."""
    held = Held()
    made = bench(held, seconds_per_token=1.0)
    running = made.rank("a", "b", "c", left_s=3.5)
    await held.begun()
    with pytest.raises(NotServed, match="busy"):
        await made.rank("d", "e", "f", "g", "h", left_s=6.5)
    partial = made.rank("d", "e", "f", "g", "h", left_s=6.5, partial=True)
    await made.until(lambda: made.scheduler.waiting == 7)
    held.release.set()
    assert len((await running).scored) == 3
    assert [scored.index for scored in (await partial).scored] == [0, 1, 2, 3]


async def test_the_same_pair_in_flight_runs_once(bench: Make) -> None:
    """For another request, and twice in one."""
    held = Held()
    made = bench(held)
    first = made.rank("a", "b", "a")
    await held.begun()
    second = made.rank("b", "a")
    await made.until(lambda: made.counts.lookups.count("joined") == 3)
    held.release.set()
    one, two = await asyncio.gather(first, second)
    assert made.scorer.runs == ["a", "b"]
    assert [scored.index for scored in one.scored] == [0, 1, 2]
    assert [scored.index for scored in two.scored] == [0, 1]


async def test_one_that_leaves_does_not_take_the_shared_pair_along(bench: Make) -> None:
    """The other keeps waiting for it, with its own deadline."""
    held = Held()
    made = bench(held)
    held.scorer = made.scorer
    first = made.rank("a")
    await held.begun()
    second = made.rank("a")
    await made.until(lambda: made.counts.lookups.count("joined") == 1)
    first.cancel()
    await asyncio.wait({first})
    assert not made.scorer.stops["a"].requested
    held.release.set()
    assert (await second).scored
    assert made.scorer.runs == ["a"]


async def test_one_that_leaves_alone_ends_its_run(bench: Make) -> None:
    """What ran is told to end, what waited is never started, and the next one that asks runs it anew."""
    held = Held()
    made = bench(held, cache=10)
    held.scorer = made.scorer
    first = made.rank("a", "b")
    await held.begun()
    first.cancel()
    await asyncio.wait({first})
    assert made.scorer.stops["a"].requested
    held.release.set()
    assert len((await made.rank("a")).scored) == 1
    assert made.scorer.runs == ["a", "a"]
    assert len(made.cache) == 1


async def test_the_answer_does_not_wait_for_a_run_that_will_not_end(bench: Make) -> None:
    """At the deadline the run is told to end; the scored prefix leaves, whatever the run does."""
    release = threading.Event()

    def score(_: str, document: str) -> float:
        if document == "stuck":
            release.wait(LIMIT_S)
        return 1.0

    made = bench(score, workers=2)
    started = time.monotonic()
    # A clock that stands still gives the wait its full length: 0.3 s in truth.
    outcome = await made.rank("quick", "stuck", "behind", left_s=0.3, partial=True)
    assert time.monotonic() - started < 2.3
    assert made.scorer.stops["stuck"].requested
    release.set()
    assert [scored.index for scored in outcome.scored] == [0]
    assert [(each.index, each.reason) for each in outcome.unscored] == [(1, "deadline"), (2, "deadline")]


async def test_a_score_behind_a_gap_does_not_count_but_is_remembered(bench: Make) -> None:
    """The scored ones are a prefix; the other one saves a run later."""
    held = Held()
    made = bench(lambda query, document: 1.0 if document == "known" else held(query, document), cache=10)
    held.scorer = made.scorer
    await made.rank("known")
    outcome = await made.rank("slow", "known", left_s=0.2, partial=True)
    assert outcome.scored == ()
    assert [each.reason for each in outcome.unscored] == ["deadline", "deadline"]
    assert made.counts.lookups == ["miss", "miss", "hit"]


async def test_a_known_pair_is_not_run_again(bench: Make) -> None:
    """Nor tokenised; another query makes it another pair, and control characters do not."""
    made = bench(cache=10)
    first = await made.rank("a b", "c")
    again = await made.rank("a b", "\x00c")
    await made.rank("c", query="other")
    assert first.scored == again.scored
    assert made.scorer.runs == ["a b", "c", "c"]
    assert made.counts.lookups == ["miss", "miss", "hit", "hit", "miss"]


async def test_the_cache_forgets_what_was_used_longest_ago(bench: Make) -> None:
    """It holds no more than it may."""
    made = bench(cache=2)
    for document in ("a", "b", "a", "c", "a", "b"):
        await made.rank(document)
    assert made.scorer.runs == ["a", "b", "c", "b"]
    assert len(made.cache) == 2


async def test_closing_answers_who_waits(bench: Make) -> None:
    """With what there is, and the threads end."""
    held = Held()
    made = bench(held)
    held.scorer = made.scorer
    waiting = made.rank("a", "b", partial=True)
    await held.begun()
    await asyncio.to_thread(made.scheduler.close)
    assert [each.reason for each in (await waiting).unscored] == ["deadline", "deadline"]
    assert not any(thread.is_alive() for thread in made.scheduler._threads)
