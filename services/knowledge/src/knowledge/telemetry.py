"""Every name that the gateway's traces, metrics and logs use, and the instruments behind them.

Nothing here takes a query, a passage, an id or a subject: labels come from closed sets.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import structlog
from opentelemetry.metrics import Meter
from opentelemetry.trace import NoOpTracer, Span, SpanKind, StatusCode, Tracer

from knowledge.errors import RerankError
from knowledge.models import Degraded, Outcome, RerankReport

SERVICE = "knowledge-gateway"

# Span attributes.
RERANKER_FALLBACK = "reranker_fallback"
FALLBACK_REASON = "reranker.fallback.reason"
RERANKER_OUTCOME = "reranker.outcome"
RERANKER_PROVIDER = "reranker.provider"
RERANKER_CANDIDATE_COUNT = "reranker.candidate.count"
RERANKER_SCORED_COUNT = "reranker.scored.count"
RERANKER_TIMEOUT_S = "reranker.timeout_s"
PARTIAL_REASON = "reranker.partial.reason"
CANDIDATE_COUNT = "knowledge.candidate.count"
DEGRADED = "knowledge.degraded"
STAGE = "knowledge.stage"
ERROR_TYPE = "error.type"
GEN_AI_OPERATION = "gen_ai.operation.name"
GEN_AI_MODEL = "gen_ai.request.model"
DB_SYSTEM = "db.system.name"
DB_OPERATION = "db.operation.name"
DB_COLLECTION = "db.collection.name"
DB_BATCH_SIZE = "db.operation.batch.size"

# Metrics.
SEARCHES = "knowledge.searches"
STAGE_DURATION = "knowledge.stage.duration"
CANDIDATES = "knowledge.candidates"
DEGRADED_ANSWERS = "knowledge.degraded.answers"
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
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

log = structlog.get_logger(SERVICE)


def begin_request_span(span: Span, scope: Mapping[str, Any]) -> None:
    """A search span says from its beginning whether there was a fallback, also if it ends in a problem; no span names a document."""
    path = str(scope.get("path"))
    if path == "/search":
        span.set_attribute(RERANKER_FALLBACK, value=False)
    elif path.startswith("/documents/"):
        span.set_attribute("url.path", "/documents/{document_id}")


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
                yield span
            except RerankError as error:
                span.set_attribute(ERROR_TYPE, error.reason.value)
                span.set_status(StatusCode.ERROR, error.reason.value)
                raise

    def record_search(self, span: Span, report: RerankReport, degraded: tuple[Degraded, ...], candidates: int) -> None:
        """Say the same of one search in its server span, in the metrics and, on a fallback, in the log."""
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
        if report.status is Outcome.PARTIAL and report.reason is not None:
            span.set_attribute(PARTIAL_REASON, report.reason.value)
            self.partials.add(1, {PARTIAL_REASON: report.reason.value, RERANKER_PROVIDER: provider})
        if fallback and report.reason is not None:
            self._record_fallback(span, report.reason.value, provider, report.elapsed_ms)

    def record_cancelled(self, span: Span) -> None:
        """The caller went away before the answer."""
        span.set_attribute(RERANKER_OUTCOME, Outcome.CANCELLED.value)
        self.searches.add(1, {RERANKER_OUTCOME: Outcome.CANCELLED.value})

    def _record_fallback(self, span: Span, reason: str, provider: str, elapsed_ms: float) -> None:
        span.set_attribute(FALLBACK_REASON, reason)
        span.add_event(FALLBACK_EVENT, {FALLBACK_REASON: reason})
        self.fallbacks.add(1, {FALLBACK_REASON: reason, RERANKER_PROVIDER: provider})
        log.warning(FALLBACK_EVENT, reason=reason, provider=provider, elapsed_ms=round(elapsed_ms, 1))
