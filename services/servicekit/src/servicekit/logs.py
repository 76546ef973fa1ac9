"""Structured logs: one JSON object a line on stderr, with the trace id; an access log without query strings."""

import logging
import sys
import time
from collections.abc import MutableMapping
from typing import Any

import structlog
from opentelemetry import trace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from servicekit.disconnect import CLIENT_CLOSED_REQUEST

# Loggers that print whole request bodies at DEBUG, so the query text with them.
CHATTY = ("opensearch", "httpx", "httpcore", "urllib3", "aiohttp.access", "huggingface_hub")
QUIET_PATHS = frozenset({"/health", "/ready", "/metrics"})


def _add_trace(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = format(context.trace_id, "032x")
        event["span_id"] = format(context.span_id, "016x")
    return event


class _RefusalInOneLine(logging.Filter):
    """The server prints a refused start as a traceback; the person who starts it needs the sentence at its end."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if text.startswith("Traceback") and (at := text.rfind("ConfigurationError: ")) >= 0:
            record.msg, record.args = text[at:].strip(), ()
        return True


def configure_logging(service: str, level: str) -> None:
    """Send structlog and the standard library's loggers to stderr as JSON lines at `level`."""
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_trace,
    ]
    structlog.configure(
        processors=[
            *shared,
            structlog.processors.EventRenamer("event"),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            lambda _, __, event: {"service": service, **event},
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("uvicorn.error").addFilter(_RefusalInOneLine())
    for name in CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


class AccessLog:
    """ASGI middleware: one line a request with route, status and duration. Never the query string, never the body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.log = structlog.get_logger("access")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or scope["path"] in QUIET_PATHS:
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), CLIENT_CLOSED_REQUEST

        async def watched_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watched_send)
        finally:
            # The route's template, not the path: a path holds document ids.
            route = getattr(scope.get("route"), "path", "unmatched")
            elapsed = round((time.perf_counter() - started) * 1000, 1)
            self.log.info("request", method=scope["method"], route=route, status=status, elapsed_ms=elapsed)
