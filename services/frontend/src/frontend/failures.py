"""Errors as a page for a person who opened one, as problem objects for everybody else."""

from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from frontend.language import catalogue, language_of
from frontend.pages import render
from servicekit.problems import Problem, install_problem_handlers


def install_failure_pages(app: FastAPI) -> None:
    """Make every error of the app a page or a problem object."""
    install_problem_handlers(app)

    async def on_problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)  # noqa: S101 - narrows the type that Starlette's signature hides
        return failure(request, error)

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - as above
        code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
        return failure(request, Problem(error.status_code, code, str(error.detail), headers=dict(error.headers or {})))

    app.add_exception_handler(Problem, on_problem)
    app.add_exception_handler(HTTPException, on_http)


def failure(request: Request, problem: Problem) -> Response:
    """The page where a browser opens one, the problem object where a script asks."""
    opened = "text/html" in request.headers.get("Accept", "") and not request.url.path.startswith("/api/")
    if not opened:
        return problem.response()
    known = catalogue(language_of(request))
    key = f"problem.{problem.code}"
    detail = known.get(key, known["problem.other"])
    return render(request, request.app.state.site, "failure.html", problem.status, detail=detail, code=problem.status)
