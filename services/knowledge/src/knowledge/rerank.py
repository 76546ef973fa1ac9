"""The rerank stage's policy: whether to ask, how long to wait, what to make of the answer, and which reason a failure has.

Whatever happens here, the caller is served: `RerankStage.score` returns scores for the head or a report that says why not.
The only error it raises is the one that the operator asked for (`RERANKER_PERMANENT_ERRORS=error`).
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from knowledge.breaker import Breaker
from knowledge.deadline import Clock, Deadline
from knowledge.errors import FallbackReason, RerankerRefused, RerankError
from knowledge.models import Outcome, PartialReason, Reranking, RerankReport, SkipReason
from knowledge.ports import Reranker
from knowledge.settings import RerankerSettings
from knowledge.telemetry import RERANKER_PROVIDER, RERANKER_SCORED_COUNT, Instruments

log = structlog.get_logger(__name__)

ANSWER_MARGIN_S = 0.05
"""Kept back of the time left, to merge and to answer."""
MIN_WORTHWHILE_S = 0.05
MIN_CANDIDATES = 2
LATCH_PROBE_S = 30.0
LATCH_LOG_S = 60.0
SHORTENED_DEADLINE_S = 2.0
"""A provider that was given less than this and met its deadline has shown nothing about its health."""
COST_SMOOTHING = 0.2
PROBE_QUERY = "Does the reranker answer?"
PROBE_DOCUMENTS = ("Yes, it does.", "The weather is fine.")


@dataclass(frozen=True, slots=True)
class Scores:
    """What reranking gave: scores by index of the document sent (empty on a fallback or a skip) and the report."""

    report: RerankReport
    by_index: Mapping[int, float] = field(default_factory=dict)
    asked: bool = True
    """Whether the provider was asked at all."""


class RerankStage:
    """One per process; holds what is learned of the provider: its pace, its breaker, its latch."""

    def __init__(self, reranker: Reranker | None, settings: RerankerSettings, metrics: Instruments, clock: Clock) -> None:
        self._reranker = reranker
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._breaker = Breaker(clock)
        self._seconds_per_pair = 0.0
        self.misconfigured = False
        """Whether the provider's last word was that the configuration is wrong."""
        self._probed_at = -math.inf
        self._logged_at = -math.inf

    def skip_reason(self, *, requested: bool, candidates: int) -> SkipReason | None:
        """Why there is nothing to ask for, if so."""
        checks = (
            (not self._settings.reranker_enabled, SkipReason.DISABLED),
            (self._reranker is None, SkipReason.NOT_CONFIGURED),
            (not requested, SkipReason.NOT_REQUESTED),
            (candidates == 0, SkipReason.NO_CANDIDATES),
            (candidates < MIN_CANDIDATES, SkipReason.TOO_FEW_CANDIDATES),
        )
        return next((reason for applies, reason in checks if applies), None)

    async def score(self, query: str, documents: Sequence[str], deadline: Deadline) -> Scores:
        """Ask the provider to score `documents` against `query` in the time left, and check its answer.

        Raises:
            RerankerRefused: a latched misconfiguration and RERANKER_PERMANENT_ERRORS=error.
        """
        reranker = self._reranker
        assert reranker is not None  # noqa: S101 - skip_reason was asked first
        started = self._clock()
        wait = min(self._settings.reranker_timeout_s, deadline.left() - ANSWER_MARGIN_S)
        given = wait - reranker.answer_margin_s
        report = RerankReport(Outcome.FALLBACK, provider=reranker.provider, model=reranker.model or None, candidates=len(documents))
        refusal = self._refusal(given)
        permit = None if refusal is not None else self._breaker.admit()
        if permit is None:
            return self._fall_back(report, RerankError(refusal or FallbackReason.CIRCUIT_OPEN), started, asked=False)
        try:
            answer, scores = await self._ask(reranker, query, documents, wait)
        except RerankError as error:
            self._learn_failure(error)
            if says_unwell(error, given):
                self._breaker.failed(permit)
            else:
                self._breaker.released(permit)
            return self._fall_back(report, error, started)
        except asyncio.CancelledError:
            self._breaker.released(permit)
            raise
        elapsed_s = self._clock() - started
        self._breaker.succeeded(permit)
        self._learn_success(elapsed_s / len(scores))
        report = replace(report, model=answer.model, score_kind=answer.score_kind, scored=len(scores), elapsed_ms=_milliseconds(elapsed_s))
        if len(scores) == len(documents):
            return Scores(replace(report, status=Outcome.APPLIED), scores)
        return Scores(replace(report, status=Outcome.PARTIAL, reason=_partial_reason(answer)), scores)

    async def probe(self, timeout_s: float) -> FallbackReason | None:
        """Score two short documents, whatever breaker and latch say; the reason if that failed."""
        assert self._reranker is not None  # noqa: S101 - only a configured provider is probed
        try:
            await self._ask(self._reranker, PROBE_QUERY, PROBE_DOCUMENTS, timeout_s)
        except RerankError as error:
            self._learn_failure(error)
            return error.reason
        self._unlatch()
        return None

    def _refusal(self, given_s: float) -> FallbackReason | None:
        """The reason not to ask at all, if there is one."""
        if given_s < max(MIN_WORTHWHILE_S, MIN_CANDIDATES * self._seconds_per_pair):
            # A pace learned in a bad moment must not keep short deadlines out for ever.
            self._seconds_per_pair *= 1 - COST_SMOOTHING
            return FallbackReason.TOO_LATE
        if self.misconfigured and self._clock() - self._probed_at < LATCH_PROBE_S:
            return FallbackReason.MISCONFIGURED
        return None

    async def _ask(self, reranker: Reranker, query: str, documents: Sequence[str], wait_s: float) -> tuple[Reranking, dict[int, float]]:
        """The provider's answer and the scores in it that hold, under one span."""
        span = self._metrics.rerank_span(provider=reranker.provider, model=reranker.model, candidates=len(documents), wait_s=wait_s)
        with span as recorded:
            answer = await self._call(reranker, query, documents, wait_s)
            scores = check(answer, len(documents))
            recorded.set_attribute(RERANKER_SCORED_COUNT, len(scores))
            return answer, scores

    async def _call(self, reranker: Reranker, query: str, documents: Sequence[str], wait_s: float) -> Reranking:
        self._probed_at = self._clock()
        labels = {RERANKER_PROVIDER: reranker.provider}
        self._metrics.provider_calls.add(1, labels)
        self._metrics.provider_characters.add(sum(map(len, documents)), labels)
        try:
            async with asyncio.timeout(wait_s):
                return await reranker.rerank(query, documents, wait_s)
        except TimeoutError as error:
            raise RerankError(FallbackReason.CLIENT_TIMEOUT) from error
        except RerankError:
            raise
        except Exception as error:
            log.error("reranker.adapter_failed", error=type(error).__name__, provider=reranker.provider)
            raise RerankError(FallbackReason.MALFORMED_RESPONSE) from error

    def _fall_back(self, report: RerankReport, error: RerankError, started: float, *, asked: bool = True) -> Scores:
        if error.reason is FallbackReason.MISCONFIGURED and self._settings.reranker_permanent_errors == "error":
            raise RerankerRefused("The rerank provider refuses this gateway's configuration.") from error
        return Scores(replace(report, reason=error.reason, elapsed_ms=_milliseconds(self._clock() - started)), asked=asked)

    def _learn_success(self, seconds_per_pair: float) -> None:
        self._unlatch()
        known = self._seconds_per_pair or seconds_per_pair
        self._seconds_per_pair = known + COST_SMOOTHING * (seconds_per_pair - known)

    def _learn_failure(self, error: RerankError) -> None:
        if error.reason is FallbackReason.MISCONFIGURED:
            self._latch(error)

    def _latch(self, error: RerankError) -> None:
        self.misconfigured = True
        self._metrics.misconfigured.set(1)
        if self._clock() - self._logged_at >= LATCH_LOG_S:
            self._logged_at = self._clock()
            log.error("reranker.misconfigured", status=error.status, provider=self._reranker.provider if self._reranker else None)

    def _unlatch(self) -> None:
        if self.misconfigured:
            self.misconfigured = False
            self._metrics.misconfigured.set(0)
            log.info("reranker.configured_again")


def says_unwell(error: RerankError, given_s: float) -> bool:
    """Whether a failure counts for the breaker: what the caller caused, or a deadline that the caller shortened, does not."""
    match error.reason:
        case FallbackReason.TRANSPORT | FallbackReason.LOADING | FallbackReason.MALFORMED_RESPONSE:
            return True
        case FallbackReason.HTTP_STATUS:
            return error.status is not None and error.status >= 500
        case FallbackReason.CLIENT_TIMEOUT | FallbackReason.DEADLINE:
            return given_s >= SHORTENED_DEADLINE_S
        case _:
            return False


def check(answer: Reranking, sent: int) -> dict[int, float]:
    """The provider's scores by index, after every check that its answer must pass.

    Raises:
        RerankError: `malformed_response` for more results than sent, an index that is no integer, out of range or there
            twice, a score that is no finite number; with no score at all `deadline` where the provider names it.
    """
    malformed = RerankError(FallbackReason.MALFORMED_RESPONSE)
    if len(answer.results) > sent:
        raise malformed
    scores: dict[int, float] = {}
    for index, score in answer.results:
        if type(index) is not int or not 0 <= index < sent or index in scores:
            raise malformed
        if type(score) not in (int, float):
            raise malformed
        try:
            scores[index] = float(score)
        except OverflowError:  # an integer of hundreds of digits
            raise malformed from None
        if not math.isfinite(scores[index]):
            raise malformed
    if not scores:
        late = _partial_reason(answer) is PartialReason.DEADLINE
        raise RerankError(FallbackReason.DEADLINE) if late else malformed
    return scores


def _partial_reason(answer: Reranking) -> PartialReason:
    late = any(reason == PartialReason.DEADLINE.value for _, reason in answer.unscored)
    return PartialReason.DEADLINE if late else PartialReason.UNSCORED


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 1)
