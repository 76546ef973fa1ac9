"""From the gateway's errors to problems on the wire, in one place."""

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from knowledge.errors import BackendError, InvalidRequest, RequestError, SearchUnavailable, Unauthenticated
from servicekit.problems import Problem


def problem_of(error: RequestError) -> Problem:
    """The problem that answers `error`."""
    headers, extra = {}, {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, InvalidRequest):
        extra["errors"] = [{"field": error.field, "message": error.message}]
    return Problem(error.status, error.code, error.detail, headers=headers, extra=extra)


def install_error_handlers(app: FastAPI) -> None:
    """Answer every `RequestError`, and a backend that fails outside a search, with its problem."""

    async def on_request_error(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestError)  # noqa: S101 - narrows the type that Starlette's signature hides
        return problem_of(error).response()

    async def on_backend_error(_: Request, __: Exception) -> JSONResponse:
        return problem_of(SearchUnavailable("The search backend did not answer; try again.", retry_after_s=1)).response()

    app.add_exception_handler(RequestError, on_request_error)
    app.add_exception_handler(BackendError, on_backend_error)
