"""The client span of one multi-search: which engine, which index, how many bodies, what failed. Never a text."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, format_trace_id

from knowledge.models import LegResult
from knowledge.telemetry import DB_BATCH_SIZE, DB_COLLECTION, DB_OPERATION, DB_SYSTEM, ERROR_TYPE

MSEARCH = "msearch"


@dataclass(frozen=True, slots=True)
class SearchSpan:
    """The span, and what an adapter still asks and says."""

    span: Span

    @property
    def trace_id(self) -> str:
        """The trace in hexadecimal, for logs of others."""
        return format_trace_id(self.span.get_span_context().trace_id)

    def legs(self, results: Sequence[LegResult]) -> None:
        """Mark the span as failed if a leg did."""
        if any(result.failed for result in results):
            late = any(result.failed and result.timed_out for result in results)
            self.span.set_attribute(ERROR_TYPE, "timeout" if late else "leg_failed")
            self.span.set_status(Status(StatusCode.ERROR))


@contextmanager
def search_span(tracer: Tracer, system: str, index: str, bodies: int) -> Iterator[SearchSpan]:
    """A span `msearch {index}` around the block; an error leaves its type there and nothing of its message."""
    attributes: dict[str, str | int] = {DB_SYSTEM: system, DB_OPERATION: MSEARCH, DB_COLLECTION: index}
    if bodies > 1:
        attributes[DB_BATCH_SIZE] = bodies
    with tracer.start_as_current_span(
        f"{MSEARCH} {index}", kind=SpanKind.CLIENT, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield SearchSpan(span)
        except BaseException as error:
            span.set_attribute(ERROR_TYPE, type(error.__context__ or error).__name__)
            span.set_status(Status(StatusCode.ERROR))
            raise
