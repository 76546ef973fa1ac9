"""The rerank stage: whether to ask, how long to wait, what to make of the answer, which reason a failure has."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from knowledge.deadline import Deadline
from knowledge.errors import FallbackReason, RerankerRefused, RerankError
from knowledge.models import Outcome, PartialReason, Reranking, ScoreKind, SkipReason
from knowledge.rerank import LATCH_LOG_S, LATCH_PROBE_S, RerankStage, Scores, check, says_unwell
from services.knowledge.tests.fakes import FakeClock, FakeReranker, Script, failing, reranking, score_all
from services.knowledge.tests.serving import new_stage

DOCUMENTS = ("eins", "zwei", "drei")
NOT_COUNTED = (FallbackReason.OVERLOADED, FallbackReason.RATE_LIMITED, FallbackReason.REJECTED, FallbackReason.MISCONFIGURED)


async def score(stage: RerankStage, clock: FakeClock, seconds: float = 30.0) -> Scores:
    """One call of the stage with this much time left."""
    return await stage.score("frage", DOCUMENTS, Deadline.after(seconds, clock))


def stage_of(script: Script, **given: Any) -> tuple[RerankStage, FakeReranker, FakeClock]:
    """A stage over a scripted reranker."""
    clock, reranker = FakeClock(), FakeReranker(script)
    return new_stage(reranker, clock, **given), reranker, clock


async def fail_times(stage: RerankStage, clock: FakeClock, times: int, seconds: float = 30.0) -> list[FallbackReason]:
    """The reasons of so many searches in a row."""
    return [(await score(stage, clock, seconds)).report.reason for _ in range(times)]


async def test_a_full_answer_is_applied() -> None:
    """All scores come back by index, with the model and the kind of score that the provider named."""
    stage, reranker, clock = stage_of(lambda *_: reranking({2: 0.9, 0: 0.1, 1: 0.5}))
    found = await score(stage, clock)
    assert found.by_index == {0: 0.1, 1: 0.5, 2: 0.9}
    report = found.report
    assert (report.status, report.reason, report.candidates, report.scored) == (Outcome.APPLIED, None, 3, 3)
    assert (report.provider, report.model, report.score_kind) == ("fake", "fake-reranker", ScoreKind.PROBABILITY)
    assert reranker.calls[0][:2] == ("frage", list(DOCUMENTS))


async def test_elapsed_time_is_measured_on_the_given_clock() -> None:
    """`elapsed_ms` is the time the provider took."""
    clock = FakeClock()

    def slowly(query: str, documents: Any) -> Reranking:
        clock.advance(0.25)
        return score_all(query, documents)

    stage = new_stage(FakeReranker(slowly), clock)
    assert (await score(stage, clock)).report.elapsed_ms == 250.0


@pytest.mark.parametrize(
    ("unscored", "reason"),
    [
        ([(1, "deadline"), (2, "deadline")], PartialReason.DEADLINE),
        ([(1, "nan"), (2, "deadline")], PartialReason.DEADLINE),
        ([(1, "empty"), (2, "nan")], PartialReason.UNSCORED),
        ([], PartialReason.UNSCORED),
    ],
)
async def test_fewer_scores_than_documents_is_partial(unscored: list[tuple[int, str]], reason: PartialReason) -> None:
    """What was scored is used; the reason is `deadline` where the provider names it, else `unscored`."""
    stage, _, clock = stage_of(lambda *_: reranking({0: 0.5}, unscored))
    found = await score(stage, clock)
    assert (found.report.status, found.report.reason, found.report.scored) == (Outcome.PARTIAL, reason, 1)
    assert found.by_index == {0: 0.5}


@pytest.mark.parametrize(
    ("unscored", "reason"),
    [
        ([(0, "deadline")], FallbackReason.DEADLINE),
        ([(0, "empty"), (1, "nan")], FallbackReason.MALFORMED_RESPONSE),
        ([], FallbackReason.MALFORMED_RESPONSE),
    ],
)
async def test_no_score_at_all_is_a_fallback(unscored: list[tuple[int, str]], reason: FallbackReason) -> None:
    """An answer without one valid score reranks nothing."""
    stage, _, clock = stage_of(lambda *_: reranking({}, unscored))
    found = await score(stage, clock)
    assert (found.report.status, found.report.reason, found.by_index) == (Outcome.FALLBACK, reason, {})


@pytest.mark.parametrize(
    "results",
    [
        [(0, 0.1), (1, 0.2), (2, 0.3), (3, 0.4)],
        [(0, 0.1), (0, 0.2)],
        [(-1, 0.1)],
        [(3, 0.1)],
        [(True, 0.1)],
        [(1.0, 0.1)],
        [("1", 0.1)],
        [(None, 0.1)],
        [([0], 0.1)],
        [(0, float("nan"))],
        [(0, float("inf"))],
        [(0, float("-inf"))],
        [(0, "0.5")],
        [(0, True)],
        [(0, None)],
        [(0, {"value": 1})],
        [(0, 0.1), (1, float("nan"))],
        [(0, 10**400)],
    ],
    ids=lambda results: repr(results)[:40],
)
async def test_one_bad_result_spoils_the_whole_answer(results: list[tuple[Any, Any]]) -> None:
    """More results than sent, an index that is no integer, out of range or twice, a score that is no finite number."""
    stage, _, clock = stage_of(lambda *_: Reranking(results, "m", ScoreKind.LOGIT))
    found = await score(stage, clock)
    assert (found.report.status, found.report.reason, found.by_index) == (Outcome.FALLBACK, FallbackReason.MALFORMED_RESPONSE, {})


@given(
    st.lists(
        st.tuples(
            st.integers(-2, 6) | st.floats() | st.text(max_size=2) | st.booleans(), st.floats() | st.integers() | st.text(max_size=2)
        ),
        max_size=6,
    )
)
def test_whatever_passes_the_check_is_a_usable_score(results: list[tuple[Any, Any]]) -> None:
    """The check either raises a RerankError or gives finite floats for distinct indices of documents that were sent."""
    scores: dict[int, float] = {}
    with suppress(RerankError):
        scores = check(Reranking(results, "m", ScoreKind.LOGIT), 5)
    if not scores:
        return
    assert len(scores) == len(results)
    assert all(type(index) is int and 0 <= index < 5 for index in scores)
    assert all(type(value) is float and abs(value) < float("inf") for value in scores.values())


async def test_an_integer_score_is_a_number() -> None:
    """JSON writes 1.0 as 1 at times: that is no garbage."""
    stage, _, clock = stage_of(lambda *_: reranking([1, 0, 2]))
    assert (await score(stage, clock)).by_index == {0: 1.0, 1: 0.0, 2: 2.0}


@pytest.mark.parametrize("reason", list(FallbackReason))
async def test_every_failure_of_the_provider_is_a_fallback_with_its_word(reason: FallbackReason) -> None:
    """No reason that an adapter may raise ever reaches the caller as an error."""
    stage, _, clock = stage_of(failing(reason, 500))
    report = (await score(stage, clock)).report
    assert (report.status, report.reason, report.scored, report.candidates) == (Outcome.FALLBACK, reason, 0, 3)
    assert (report.provider, report.model) == ("fake", "fake-reranker")


def broken(*_: Any) -> Reranking:
    """The script of an adapter that raises what no adapter should."""
    raise RuntimeError("a bug")


async def test_an_adapter_with_a_bug_of_its_own_still_falls_back() -> None:
    """At search time every failure of the reranker falls back, even one that nobody thought of."""
    stage, _, clock = stage_of(broken)
    assert (await score(stage, clock)).report.status is Outcome.FALLBACK


async def test_an_adapter_with_a_bug_of_its_own_does_not_keep_the_breaker_half_open() -> None:
    """Whatever the probe raised, the next one may go: a breaker stuck half-open would be `circuit_open` for ever."""
    stage, reranker, clock = stage_of(failing(FallbackReason.TRANSPORT))
    await fail_times(stage, clock, 5)
    clock.advance(2)
    reranker.script = broken
    with suppress(RuntimeError):
        await score(stage, clock)
    reranker.script = score_all
    clock.advance(2)
    assert (await score(stage, clock)).report.status is Outcome.APPLIED


async def test_a_hanging_provider_is_a_client_timeout() -> None:
    """No answer within the wait ends the call; it is cancelled, not left behind."""
    stage, reranker, clock = stage_of(score_all)
    reranker.hold = asyncio.Event()
    report = (await score(stage, clock, 0.27)).report
    assert (report.status, report.reason) == (Outcome.FALLBACK, FallbackReason.CLIENT_TIMEOUT)
    assert reranker.cancelled


@pytest.mark.parametrize(("left", "expected"), [(30.0, 27.0), (10.0, 9.95), (27.05, 27.0)])
async def test_the_wait_is_the_timeout_or_the_time_left_less_a_margin(left: float, expected: float) -> None:
    """`client_wait = min(RERANKER_TIMEOUT_S, time left - 50 ms)`."""
    stage, reranker, clock = stage_of(score_all)
    await score(stage, clock, left)
    assert reranker.calls[0][2] == pytest.approx(expected)


@pytest.mark.parametrize(("left", "asked"), [(0.0, False), (0.1, False), (0.24, False), (0.26, True)])
async def test_too_little_time_is_too_late_and_nobody_is_asked(left: float, asked: bool) -> None:
    """Under the floor of 50 ms for the provider (after 50 ms for the answer and 150 ms for the wire) it is not called."""
    stage, reranker, clock = stage_of(score_all)
    report = (await score(stage, clock, left)).report
    assert bool(reranker.calls) is asked
    assert (report.reason is FallbackReason.TOO_LATE) is not asked


async def test_too_late_follows_the_predicted_cost_of_two_pairs() -> None:
    """A provider known to need a second a pair is not asked with one second left; with five it is."""
    clock = FakeClock()

    def slowly(query: str, documents: Any) -> Reranking:
        clock.advance(1.0 * len(documents))
        return score_all(query, documents)

    reranker = FakeReranker(slowly)
    stage = new_stage(reranker, clock)
    await score(stage, clock)
    assert (await score(stage, clock, 1.0)).report.reason is FallbackReason.TOO_LATE
    assert len(reranker.calls) == 1
    assert (await score(stage, clock, 5.0)).report.status is Outcome.APPLIED


async def test_a_pace_learned_in_a_bad_moment_does_not_keep_short_deadlines_out_for_ever() -> None:
    """After enough searches that were too late one is tried again."""
    clock = FakeClock()

    def slowly(query: str, documents: Any) -> Reranking:
        clock.advance(20.0)
        return score_all(query, documents)

    stage = new_stage(FakeReranker(slowly), clock)
    await score(stage, clock)
    reasons = [(await score(stage, clock, 2.0)).report.reason for _ in range(30)]
    assert reasons[0] is FallbackReason.TOO_LATE
    assert None in reasons


@pytest.mark.parametrize(
    ("given", "requested", "candidates", "expected"),
    [
        ({"reranker_enabled": False}, True, 15, SkipReason.DISABLED),
        ({}, False, 15, SkipReason.NOT_REQUESTED),
        ({}, True, 0, SkipReason.NO_CANDIDATES),
        ({}, True, 1, SkipReason.TOO_FEW_CANDIDATES),
        ({}, True, 2, None),
    ],
)
def test_when_there_is_nothing_to_ask_for(given: dict[str, Any], requested: bool, candidates: int, expected: SkipReason | None) -> None:
    """Each skip has its own word; two candidates are enough."""
    stage, _, _ = stage_of(score_all, **given)
    assert stage.skip_reason(requested=requested, candidates=candidates) is expected


def test_no_provider_is_not_configured() -> None:
    """Without a provider the skip says so, and `disabled` goes before it."""
    clock = FakeClock()
    assert new_stage(None, clock).skip_reason(requested=True, candidates=9) is SkipReason.NOT_CONFIGURED
    assert new_stage(None, clock, reranker_enabled=False).skip_reason(requested=True, candidates=9) is SkipReason.DISABLED


@pytest.mark.parametrize(
    ("reason", "status", "given_s", "counts"),
    [
        (FallbackReason.TRANSPORT, None, 0.1, True),
        (FallbackReason.LOADING, 503, 0.1, True),
        (FallbackReason.MALFORMED_RESPONSE, None, 0.1, True),
        (FallbackReason.HTTP_STATUS, 500, 0.1, True),
        (FallbackReason.HTTP_STATUS, 503, 0.1, True),
        (FallbackReason.HTTP_STATUS, 302, 9, False),
        (FallbackReason.HTTP_STATUS, 418, 9, False),
        (FallbackReason.CLIENT_TIMEOUT, None, 2.0, True),
        (FallbackReason.DEADLINE, 503, 2.0, True),
        (FallbackReason.DEADLINE, 503, 1.9, False),
        (FallbackReason.TOO_LATE, None, 9, False),
        (FallbackReason.OVERLOADED, 429, 9, False),
        (FallbackReason.RATE_LIMITED, 429, 9, False),
        (FallbackReason.REJECTED, 422, 9, False),
        (FallbackReason.MISCONFIGURED, 401, 9, False),
        (FallbackReason.CIRCUIT_OPEN, None, 9, False),
    ],
)
def test_what_counts_for_the_breaker(reason: FallbackReason, status: int | None, given_s: float, counts: bool) -> None:
    """Only what says that the provider is unwell counts; what the caller caused does not."""
    assert says_unwell(RerankError(reason, status=status), given_s) is counts


async def test_five_failures_open_the_breaker_and_nobody_is_asked_for_two_seconds() -> None:
    """The sixth search is answered `circuit_open` at once; after two seconds one probe goes through."""
    stage, reranker, clock = stage_of(failing(FallbackReason.TRANSPORT))
    assert await fail_times(stage, clock, 5) == [FallbackReason.TRANSPORT] * 5
    assert await fail_times(stage, clock, 2) == [FallbackReason.CIRCUIT_OPEN] * 2
    assert len(reranker.calls) == 5
    clock.advance(2)
    reranker.script = score_all
    assert (await score(stage, clock)).report.status is Outcome.APPLIED
    assert (await score(stage, clock)).report.status is Outcome.APPLIED


@pytest.mark.parametrize("reason", NOT_COUNTED)
async def test_refusals_never_open_the_breaker(reason: FallbackReason) -> None:
    """Busy, rate-limited, rejected and misconfigured answers come from a provider that is alive."""
    stage, reranker, clock = stage_of(failing(reason, 429))
    for _ in range(10):
        await score(stage, clock)
        clock.advance(LATCH_PROBE_S)
    assert len(reranker.calls) == 10


async def test_partial_answers_are_successes_for_the_breaker() -> None:
    """Five failures among six partial answers do not open it."""
    stage, reranker, clock = stage_of(lambda *_: reranking({0: 0.1}))
    for _ in range(6):
        await score(stage, clock)
    reranker.script = failing(FallbackReason.TRANSPORT)
    assert FallbackReason.CIRCUIT_OPEN not in await fail_times(stage, clock, 5)
    assert (await score(stage, clock)).report.reason is FallbackReason.TRANSPORT


async def test_only_one_probe_is_in_flight_while_half_open() -> None:
    """While the probe has not answered all other searches fall back at once."""
    stage, reranker, clock = stage_of(failing(FallbackReason.TRANSPORT))
    await fail_times(stage, clock, 5)
    clock.advance(2)
    reranker.script, reranker.hold = score_all, asyncio.Event()
    reranker.asked.clear()
    probe = asyncio.create_task(score(stage, clock))
    await reranker.asked.wait()
    assert (await score(stage, clock)).report.reason is FallbackReason.CIRCUIT_OPEN
    reranker.hold.set()
    assert (await probe).report.status is Outcome.APPLIED


async def test_an_old_call_that_ends_does_not_give_a_second_probe_away() -> None:
    """A call from before the breaker opened says nothing about the probe that is under way."""
    stage, reranker, clock = stage_of(score_all)
    reranker.hold = old_hold = asyncio.Event()
    old = asyncio.create_task(score(stage, clock))
    await reranker.asked.wait()
    reranker.hold, reranker.script = None, failing(FallbackReason.TRANSPORT)
    await fail_times(stage, clock, 5)
    clock.advance(2)
    reranker.asked.clear()
    reranker.hold = asyncio.Event()
    probe = asyncio.create_task(score(stage, clock))
    await reranker.asked.wait()
    reranker.script = failing(FallbackReason.REJECTED, 422)
    old_hold.set()
    await old
    calls, held = len(reranker.calls), reranker.hold
    third = asyncio.create_task(score(stage, clock))
    await asyncio.sleep(0)
    held.set()
    await asyncio.gather(third, probe)
    assert len(reranker.calls) == calls


async def test_a_cancelled_call_gives_its_probe_back() -> None:
    """A caller that goes away during the probe neither closes the breaker nor locks everybody out."""
    stage, reranker, clock = stage_of(failing(FallbackReason.TRANSPORT))
    await fail_times(stage, clock, 5)
    clock.advance(2)
    reranker.hold = asyncio.Event()
    reranker.asked.clear()
    probe = asyncio.create_task(score(stage, clock))
    await reranker.asked.wait()
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    assert reranker.cancelled
    reranker.hold, reranker.script = None, score_all
    assert (await score(stage, clock)).report.status is Outcome.APPLIED


async def test_cancellations_do_not_count_as_failures() -> None:
    """Ten callers that went away leave the breaker closed."""
    stage, reranker, clock = stage_of(score_all)
    reranker.hold = asyncio.Event()
    for _ in range(10):
        task = asyncio.create_task(score(stage, clock))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    reranker.hold = None
    assert (await score(stage, clock)).report.status is Outcome.APPLIED


async def test_misconfigured_latches_until_a_probe_succeeds() -> None:
    """No further call within 30 s; then one; its success clears the latch and everything goes on."""
    stage, reranker, clock = stage_of(failing(FallbackReason.MISCONFIGURED, 401))
    assert await fail_times(stage, clock, 3) == [FallbackReason.MISCONFIGURED] * 3
    assert (len(reranker.calls), stage.misconfigured) == (1, True)
    clock.advance(LATCH_PROBE_S - 0.1)
    await score(stage, clock)
    assert len(reranker.calls) == 1
    clock.advance(0.1)
    assert await fail_times(stage, clock, 2) == [FallbackReason.MISCONFIGURED] * 2
    assert len(reranker.calls) == 2
    clock.advance(LATCH_PROBE_S)
    reranker.script = score_all
    assert (await score(stage, clock)).report.status is Outcome.APPLIED
    assert not stage.misconfigured
    assert (await score(stage, clock)).report.status is Outcome.APPLIED
    assert len(reranker.calls) == 4


async def test_a_latched_probe_that_fails_otherwise_stays_latched() -> None:
    """A time-out of the probe is no success: the latch holds."""
    stage, reranker, clock = stage_of(failing(FallbackReason.MISCONFIGURED, 404))
    await score(stage, clock)
    clock.advance(LATCH_PROBE_S)
    reranker.script = failing(FallbackReason.TRANSPORT)
    assert (await score(stage, clock)).report.reason is FallbackReason.TRANSPORT
    assert stage.misconfigured
    assert (await score(stage, clock)).report.reason is FallbackReason.MISCONFIGURED


async def test_searches_at_the_same_moment_share_one_latch_probe() -> None:
    """When 30 s have passed exactly one of many searches asks."""
    stage, reranker, clock = stage_of(failing(FallbackReason.MISCONFIGURED, 401))
    await score(stage, clock)
    clock.advance(LATCH_PROBE_S)
    reranker.hold = asyncio.Event()
    tasks = [asyncio.create_task(score(stage, clock)) for _ in range(5)]
    await asyncio.sleep(0)
    reranker.hold.set()
    reports = await asyncio.gather(*tasks)
    assert len(reranker.calls) == 2
    assert {found.report.reason for found in reports} == {FallbackReason.MISCONFIGURED}


async def test_the_latch_is_logged_at_most_once_a_minute() -> None:
    """One line a minute says what is wrong, with the status and without any text."""
    stage, _, clock = stage_of(failing(FallbackReason.MISCONFIGURED, 403))
    with capture_logs() as logs:
        for _ in range(5):
            await score(stage, clock)
            clock.advance(LATCH_PROBE_S)
    lines = [line for line in logs if line["event"] == "reranker.misconfigured"]
    assert LATCH_LOG_S == 60.0
    assert len(lines) == 3
    assert lines[0]["status"] == 403
    assert "frage" not in str(logs)


async def test_rejected_is_never_latched() -> None:
    """A request that was refused says nothing about the next one."""
    stage, reranker, clock = stage_of(failing(FallbackReason.REJECTED, 422))
    await fail_times(stage, clock, 3)
    assert (len(reranker.calls), stage.misconfigured) == (3, False)


async def test_permanent_errors_can_be_made_errors() -> None:
    """With RERANKER_PERMANENT_ERRORS=error a misconfigured provider refuses the search, latched or not; other failures still fall back."""
    stage, reranker, clock = stage_of(failing(FallbackReason.MISCONFIGURED, 401), reranker_permanent_errors="error")
    for _ in range(2):
        with pytest.raises(RerankerRefused):
            await score(stage, clock)
    assert len(reranker.calls) == 1
    clock.advance(LATCH_PROBE_S)
    reranker.script = failing(FallbackReason.TRANSPORT)
    assert (await score(stage, clock)).report.reason is FallbackReason.TRANSPORT


async def test_the_start_up_probe_goes_through_latch_and_breaker() -> None:
    """`probe` asks whatever is latched, reports the reason, and clears the latch when it succeeds."""
    stage, reranker, _ = stage_of(failing(FallbackReason.MISCONFIGURED, 401))
    reranker.probe_script = failing(FallbackReason.MISCONFIGURED, 401)
    assert await stage.probe(3.0) is FallbackReason.MISCONFIGURED
    assert stage.misconfigured
    reranker.probe_script = score_all
    assert await stage.probe(3.0) is None
    assert not stage.misconfigured


async def test_the_probe_checks_the_answer_too() -> None:
    """A provider that answers the probe with garbage is not well."""
    stage, reranker, _ = stage_of(score_all)
    reranker.probe_script = lambda *_: reranking({5: 0.1})
    assert await stage.probe(3.0) is FallbackReason.MALFORMED_RESPONSE
