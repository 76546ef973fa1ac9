"""Errors on the wire: RFC 9457 `application/problem+json`, with a stable `code` and the trace id, never an echo of the input."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from opentelemetry import trace
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from servicekit.hygiene import clean_text

log = structlog.get_logger(__name__)

PROBLEM_JSON = "application/problem+json"
MAX_NAME_LENGTH = 64
SOURCES = frozenset({"body", "query", "path", "header", "cookie"})
"""Where the framework found a field: the first part of its location, and no part of its name."""
SHAPE = "shape:"
"""Begins the tags of a body that may have one of several shapes; no part of a field's name either."""


class Problem(Exception):
    """An error with its HTTP answer.

    Args:
        status: the HTTP status.
        code: stable, machine-readable, `snake_case`.
        detail: one sentence for a person; names fields and limits, never values that came in.
        headers: extra response headers, such as `Retry-After`.
        extra: further members of the problem object, such as both numbers of an exceeded limit.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})

    def response(self) -> JSONResponse:
        """The answer on the wire."""
        body = {
            **self.extra,
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            "trace_id": current_trace_id(),
        }
        return JSONResponse(body, self.status, self.headers, media_type=PROBLEM_JSON)


def current_trace_id() -> str:
    """The trace id of the running request, 32 hex digits; zeros outside a trace."""
    return format(trace.get_current_span().get_span_context().trace_id, "032x")


def describe_validation(errors: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Field and limit of each validation error, without the value that was sent."""
    found = []
    for error in errors:
        location = list(map(str, error["loc"]))
        if location and location[0] in SOURCES:
            del location[0]
        if location and location[0].startswith(SHAPE):
            del location[0]
        # The name of an unknown field is input too: it is cleaned and cut, so that nothing strange or long comes back.
        field = clean_text(".".join(location))[:MAX_NAME_LENGTH] or "body"
        message = "unknown field" if error["type"] == "extra_forbidden" else str(error["msg"])
        if error["type"] in ("json_invalid", "value_error.jsondecode"):
            field, message = "body", "not valid JSON"
        found.append({"field": field, "message": message.removeprefix("Value error, ")})
    return found


def invalid_request(errors: Sequence[Mapping[str, Any]]) -> Problem:
    """The 422 that names every offending field and its limit."""
    fields = describe_validation(errors)
    detail = "; ".join(f"{f['field']}: {f['message']}" for f in fields[:5])
    return Problem(422, "invalid_request", detail, extra={"errors": fields})


class BodyTooLarge(Exception):
    """Raised out of `receive`, through the app, to the middleware that counts and answers."""


class InternalErrors:
    """ASGI middleware that answers a bug with a 500 and logs its class and its place: its message may hold what came in.

    It stands inside the tracing middleware, which would otherwise write message and stack into the span.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        started = False

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, watched_send)
        except BodyTooLarge:
            raise
        except Exception as error:  # noqa: BLE001 - the last resort; everything expected was answered before
            frame = error.__traceback__
            while frame is not None and frame.tb_next is not None:
                frame = frame.tb_next
            place = f"{frame.tb_frame.f_code.co_name}:{frame.tb_lineno}" if frame else "unknown"
            log.error("internal_error", error=type(error).__name__, place=place)
            if not started:
                detail = "The service met an error of its own; the trace id finds it in the log."
                await Problem(500, "internal", detail).response()(scope, receive, send)


def install_problem_handlers(app: FastAPI) -> None:
    """Make every error of the app a problem object."""

    async def on_problem(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, Problem)  # noqa: S101 - narrows the type that Starlette's signature hides
        return error.response()

    async def on_validation(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)  # noqa: S101 - as above
        return invalid_request(error.errors()).response()

    async def on_http(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)  # noqa: S101 - as above
        code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
        headers = dict(error.headers or {})
        return Problem(error.status_code, code, HTTPStatus(error.status_code).description or code, headers=headers).response()

    app.add_exception_handler(Problem, on_problem)
    app.add_exception_handler(RequestValidationError, on_validation)
    app.add_exception_handler(HTTPException, on_http)
    app.add_middleware(InternalErrors)
