"""Errors on the wire: one shape, a stable code, the trace id, and nothing of what came in."""

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import httpx
import pytest
from fastapi import FastAPI, Header
from fastapi import Query as QueryString
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from structlog.testing import capture_logs

from servicekit.problems import PROBLEM_JSON, Problem, describe_validation, install_problem_handlers

MARKER = "Zwiebelkuchen"


class Inner(BaseModel):
    """A part of the body."""

    model_config = ConfigDict(extra="forbid")

    body: int = 0
    names: list[Annotated[str, Field(max_length=5)]] = []


class Body(BaseModel):
    """A body whose fields are called like the places that they come from."""

    model_config = ConfigDict(extra="forbid")

    query: Annotated[str, Field(min_length=1, max_length=5)] = "x"
    header: int = 0
    path: Literal["a", "b"] = "a"
    inner: Inner = Inner()


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """An app that fails in every way."""
    app = FastAPI()
    install_problem_handlers(app)

    @app.post("/checked")
    async def checked(body: Body, number: Annotated[int, QueryString(ge=1)] = 1, x_number: Annotated[int, Header()] = 1) -> None:
        pass

    @app.get("/problem")
    async def problem() -> None:
        raise Problem(503, "busy", "Try again.", headers={"Retry-After": "3"}, extra={"limit": 7, "status": 999})

    @app.get("/http")
    async def http() -> None:
        raise HTTPException(403, detail=MARKER, headers={"X-Why": "because"})

    @app.get("/bug")
    async def bug() -> None:
        raise RuntimeError(MARKER)

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as found:
        yield found


def fields(response: httpx.Response) -> dict[str, str]:
    """The fields that a 422 names, with their messages; checked for the shape of every problem."""
    assert (response.status_code, response.headers["content-type"]) == (422, PROBLEM_JSON)
    body = response.json()
    assert (body["code"], body["status"], body["type"]) == ("invalid_request", 422, "about:blank")
    assert MARKER not in response.text
    return {error["field"]: error["message"] for error in body["errors"]}


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"query": ""}, "query", "1"),
        ({"query": MARKER}, "query", "5"),
        ({"header": MARKER}, "header", "integer"),
        ({"path": MARKER}, "path", "'a' or 'b'"),
        ({"inner": {"body": MARKER}}, "inner.body", "integer"),
        ({"inner": {"names": ["a", MARKER]}}, "inner.names.1", "5"),
        ({"quer": MARKER}, "quer", "unknown field"),
        ({"inner": {"quer": MARKER}}, "inner.quer", "unknown field"),
        ([MARKER], "body", ""),
        (MARKER, "body", ""),
    ],
)
async def test_the_field_is_named_by_its_own_name(client: httpx.AsyncClient, body: Any, field: str, words: str) -> None:
    """Also where it is called `query`, `header`, `path` or `body`; the limit is in the message, the value is not."""
    found = fields(await client.post("/checked", json=body))
    assert list(found) == [field]
    assert words in found[field]


async def test_query_strings_and_headers_are_named_too(client: httpx.AsyncClient) -> None:
    """By the parameter's name."""
    assert list(fields(await client.post("/checked?number=0", json={}))) == ["number"]
    assert list(fields(await client.post("/checked", json={}, headers={"X-Number": MARKER}))) == ["x-number"]


@pytest.mark.parametrize("raw", ["{", f'{{"{MARKER}', "\x00"])
async def test_a_body_that_is_not_json(client: httpx.AsyncClient, raw: str) -> None:
    """`body: not valid JSON`, without the parser's excerpt."""
    found = fields(await client.post("/checked", content=raw, headers={"Content-Type": "application/json"}))
    assert found == {"body": "not valid JSON"}


async def test_a_strange_field_name_comes_back_cleaned_and_cut(client: httpx.AsyncClient) -> None:
    """It is input too: no control characters, at most 64 characters."""
    raw = '{"' + "\\u0000\\u001b" + "x" * 500 + '": 1}'
    [name] = fields(await client.post("/checked", content=raw, headers={"Content-Type": "application/json"}))
    assert name == "x" * 64


async def test_a_field_name_that_is_no_unicode_is_refused(client: httpx.AsyncClient) -> None:
    """A lone surrogate as a name is a 422 that can be encoded."""
    assert fields(await client.post("/checked", content='{"\\ud800": 1}', headers={"Content-Type": "application/json"}))


async def test_every_offending_field_is_named(client: httpx.AsyncClient) -> None:
    """Three wrong fields are three errors, and all stand in the detail."""
    response = await client.post("/checked", json={"query": "", "header": "x", "path": "c"})
    assert set(fields(response)) == {"query", "header", "path"}
    assert all(name in response.json()["detail"] for name in ("query", "header", "path"))


async def test_a_problem_is_answered_as_it_is(client: httpx.AsyncClient) -> None:
    """Status, code, headers and extra members; the members of the standard cannot be overwritten."""
    response = await client.get("/problem")
    assert (response.status_code, response.headers["retry-after"]) == (503, "3")
    body = response.json()
    assert (body["code"], body["detail"], body["limit"], body["status"]) == ("busy", "Try again.", 7, 503)
    assert body["title"] == "Service Unavailable"
    assert body["trace_id"] == "0" * 32


async def test_errors_of_the_framework_have_the_same_shape(client: httpx.AsyncClient) -> None:
    """404, 405 and raised HTTPExceptions; their free text is not repeated, their headers are."""
    assert (await client.get("/nowhere")).json()["code"] == "not_found"
    assert (await client.put("/problem")).json()["code"] == "method_not_allowed"
    response = await client.get("/http")
    assert (response.json()["code"], response.headers["x-why"]) == ("forbidden", "because")
    assert MARKER not in response.text


async def test_an_unexpected_error_says_nothing_of_itself(client: httpx.AsyncClient) -> None:
    """500 `internal`; the log names class and place, and not the message."""
    with capture_logs() as logs:
        response = await client.get("/bug")
    assert (response.status_code, response.json()["code"]) == (500, "internal")
    assert MARKER not in response.text + str(logs)
    [line] = [line for line in logs if line["event"] == "internal_error"]
    assert line["error"] == "RuntimeError"
    assert line["place"].startswith("bug:")


def test_describing_errors_never_needs_the_input() -> None:
    """Fields and messages come from `loc`, `type` and `msg` alone."""
    errors = [{"loc": ("body", "a", 0), "type": "x", "msg": "Value error, too long"}, {"loc": (), "type": "x", "msg": "whole"}]
    assert describe_validation(errors) == [{"field": "a.0", "message": "too long"}, {"field": "body", "message": "whole"}]


def test_a_problem_without_extras_is_plain_json() -> None:
    """The body can be parsed by anybody."""
    found = json.loads(bytes(Problem(404, "not_found", "x").response().body))
    assert set(found) == {"type", "title", "status", "code", "detail", "trace_id"}
