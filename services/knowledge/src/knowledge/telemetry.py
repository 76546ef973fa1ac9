"""Every name that the gateway's traces, metrics and logs use, and the instruments behind them.

Nothing here takes a query, a passage, an id or a subject: labels come from closed sets.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import structlog
from opentelemetry.metrics import Meter
from opentelemetry.trace import NoOpTracer, Span, SpanKind, StatusCode, Tracer

from knowledge.errors import EmbeddingError, RerankError
from knowledge.models import Answer, Outcome

SERVICE = "knowledge-gateway"

# Span attributes.
RERANKER_FALLBACK = "reranker_fallback"
FALLBACK_REASON = "reranker.fallback.reason"
RERANKER_OUTCOME = "reranker.outcome"
RERANKER_PROVIDER = "reranker.provider"
RERANKER_CANDIDATE_COUNT = "reranker.candidate.count"
RERANKER_SCORED_COUNT = "reranker.scored.count"
RERANKER_TIMEOUT_S = "reranker.timeout_s"
RERANKER_TIME_LEFT_S = "reranker.time_left_s"
PARTIAL_REASON = "reranker.partial.reason"
CANDIDATE_COUNT = "knowledge.candidate.count"
DEGRADED = "knowledge.degraded"
STAGE = "knowledge.stage"
INGEST_OUTCOME = "knowledge.ingest.outcome"
ERROR_TYPE = "error.type"
GEN_AI_OPERATION = "gen_ai.operation.name"
GEN_AI_MODEL = "gen_ai.request.model"
GEN_AI_PROVIDER = "gen_ai.provider.name"
DB_SYSTEM = "db.system.name"
DB_OPERATION = "db.operation.name"
DB_COLLECTION = "db.collection.name"
DB_BATCH_SIZE = "db.operation.batch.size"

# Metrics.
SEARCHES = "knowledge.searches"
STAGE_DURATION = "knowledge.stage.duration"
CANDIDATES = "knowledge.candidates"
DEGRADED_ANSWERS = "knowledge.degraded.answers"
RERANK_MOVED = "knowledge.rerank.moved"
INGEST_ITEMS = "knowledge.ingest.items"
CLIENT_OPERATION_DURATION = "gen_ai.client.operation.duration"
FALLBACKS = "reranker.fallbacks"
PARTIALS = "reranker.partials"
SCORED_SHARE = "reranker.scored.share"
RERANK_DURATION = "reranker.duration"
PROVIDER_CALLS = "reranker.provider.calls"
PROVIDER_CHARACTERS = "reranker.provider.characters"
MISCONFIGURED = "reranker.misconfigured"

FALLBACK_EVENT = "reranker.fallback"

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2, 5, 10, 25, 27, 30)
COUNTS = (0, 1, 2, 5, 10, 15, 20, 30, 50, 75, 100)
FIRST = 5
"""Places that are looked at to tell whether reranking changes what people read."""
MOVED = tuple(range(FIRST + 1))
OPERATION_SECONDS = tuple(0.01 * 2**power for power in range(14))
"""The boundaries of the convention."""
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

SEARCH_PATHS = frozenset({"/search", "/search/stream"})

log = structlog.get_logger(SERVICE)


def begin_request_span(span: Span, scope: Mapping[str, Any]) -> None:
    """A search span says from its beginning whether there was a fallback, also if it ends in a problem."""
    if scope.get("path") in SEARCH_PATHS:
        span.set_attribute(RERANKER_FALLBACK, value=False)


def error_type(error: BaseException) -> str:
    """The word for a failed call: the reason or kind that the gateway's own errors carry, or else the class."""
    if isinstance(error, RerankError):
        return error.reason.value
    return str(error) if isinstance(error, EmbeddingError) else type(error).__name__


class Instruments:
    """The gateway's metrics, and the spans of stages that no adapter can draw."""

    def __init__(self, meter: Meter, tracer: Tracer | None = None) -> None:
        self._tracer = tracer or NoOpTracer()
        self.searches = meter.create_counter(SEARCHES, "{search}", "Searches by outcome of reranking")
        self.stage_duration = meter.create_histogram(
            STAGE_DURATION, "s", "Time per stage of a search", explicit_bucket_boundaries_advisory=SECONDS
        )
        self.candidates = meter.create_histogram(
            CANDIDATES, "{candidate}", "Fused candidates per search", explicit_bucket_boundaries_advisory=COUNTS
        )
        self.degraded = meter.create_counter(DEGRADED_ANSWERS, "{answer}", "Answers that missed something, by what")
        self.fallbacks = meter.create_counter(FALLBACKS, "{fallback}", "Searches answered in hybrid order, by reason")
        self.partials = meter.create_counter(PARTIALS, "{search}", "Searches whose head was scored in part, by reason")
        self.scored_share = meter.create_histogram(
            SCORED_SHARE, "1", "Scored part of what was sent", explicit_bucket_boundaries_advisory=SHARES
        )
        self.rerank_duration = meter.create_histogram(
            RERANK_DURATION, "s", "Time of the rerank stage by outcome", explicit_bucket_boundaries_advisory=SECONDS
        )
        self.rerank_moved = meter.create_histogram(
            RERANK_MOVED,
            "{passage}",
            "Places among the first five that hold another passage than before reranking",
            explicit_bucket_boundaries_advisory=MOVED,
        )
        self.operation_duration = meter.create_histogram(
            CLIENT_OPERATION_DURATION, "s", "Time of a call to a model", explicit_bucket_boundaries_advisory=OPERATION_SECONDS
        )
        self.ingest_items = meter.create_counter(INGEST_ITEMS, "{item}", "Documents that came over HTTP, by what became of them")
        self.provider_calls = meter.create_counter(PROVIDER_CALLS, "{call}", "Calls to the rerank provider")
        self.provider_characters = meter.create_counter(PROVIDER_CHARACTERS, "{character}", "Characters sent to be scored")
        self.misconfigured = meter.create_gauge(MISCONFIGURED, "", "1 while the provider refuses the configuration")

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one stage."""
        started = perf_counter()
        try:
            yield
        finally:
            self.stage_duration.record(perf_counter() - started, {STAGE: name})

    @contextmanager
    def operation(self, name: str, *, provider: str, model: str | None = None) -> Iterator[None]:
        """Time one call to a model; `model` where one is asked for by name."""
        known = {GEN_AI_OPERATION: name, GEN_AI_PROVIDER: provider, **({GEN_AI_MODEL: model} if model else {})}
        started = perf_counter()
        try:
            yield
        except BaseException as error:  # a call that is cancelled was one too
            known[ERROR_TYPE] = error_type(error)
            raise
        finally:
            self.operation_duration.record(perf_counter() - started, known)

    @contextmanager
    def rerank_span(self, *, provider: str, model: str, candidates: int, wait_s: float) -> Iterator[Span]:
        """The CLIENT span around a provider's call and the check of its answer; Error with the reason if either fails."""
        span_name = f"rerank {model or provider}"
        # An exception's message and stack may hold a passage: only its reason goes into the span.
        with self._tracer.start_as_current_span(
            span_name, kind=SpanKind.CLIENT, record_exception=False, set_status_on_exception=False
        ) as span:
            span.set_attributes({GEN_AI_OPERATION: "rerank", RERANKER_PROVIDER: provider, RERANKER_CANDIDATE_COUNT: candidates})
            span.set_attributes({GEN_AI_MODEL: model or "default", RERANKER_TIMEOUT_S: wait_s})
            try:
                with self.operation("rerank", provider=provider, model=model or "default"):
                    yield span
            except RerankError as error:
                span.set_attribute(ERROR_TYPE, error.reason.value)
                span.set_status(StatusCode.ERROR, error.reason.value)
                raise

    def record_search(self, span: Span, answer: Answer, candidates: int) -> None:
        """Say the same of one search in its server span, in the metrics and, on a fallback, in the log."""
        report, degraded = answer.rerank, answer.degraded
        fallback = report.status is Outcome.FALLBACK
        provider = report.provider or "none"
        span.set_attribute(RERANKER_FALLBACK, fallback)
        span.set_attribute(RERANKER_OUTCOME, report.status.value)
        span.set_attribute(CANDIDATE_COUNT, candidates)
        span.set_attribute(DEGRADED, [item.value for item in degraded])
        self.searches.add(1, {RERANKER_OUTCOME: report.status.value})
        self.candidates.record(candidates)
        for item in degraded:
            self.degraded.add(1, {DEGRADED: item.value})
        if report.status in (Outcome.APPLIED, Outcome.PARTIAL, Outcome.FALLBACK):
            self.rerank_duration.record(report.elapsed_ms / 1000, {RERANKER_OUTCOME: report.status.value})
        if report.status in (Outcome.APPLIED, Outcome.PARTIAL) and report.candidates:
            self.scored_share.record(report.scored / report.candidates)
            for results in filter(None, answer.lists):
                self.rerank_moved.record(sum(one.candidate.hybrid_rank != one.rank for one in results[:FIRST]))
        if report.status is Outcome.PARTIAL and report.reason is not None:
            span.set_attribute(PARTIAL_REASON, report.reason.value)
            self.partials.add(1, {PARTIAL_REASON: report.reason.value, RERANKER_PROVIDER: provider})
        if fallback and report.reason is not None:
            self._record_fallback(span, report.reason.value, provider, report.elapsed_ms)

    @contextmanager
    def cancellation(self, span: Span) -> Iterator[None]:
        """Say so if the caller goes away before the answer, whether that cancels a wait or closes a stream between two of them."""
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            span.set_attribute(RERANKER_OUTCOME, Outcome.CANCELLED.value)
            self.searches.add(1, {RERANKER_OUTCOME: Outcome.CANCELLED.value})
            raise

    def _record_fallback(self, span: Span, reason: str, provider: str, elapsed_ms: float) -> None:
        span.set_attribute(FALLBACK_REASON, reason)
        span.add_event(FALLBACK_EVENT, {FALLBACK_REASON: reason})
        self.fallbacks.add(1, {FALLBACK_REASON: reason, RERANKER_PROVIDER: provider})
        log.warning(FALLBACK_EVENT, reason=reason, provider=provider, elapsed_ms=round(elapsed_ms, 1))
