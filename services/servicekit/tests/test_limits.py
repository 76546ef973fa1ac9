"""The limit on bodies, declared and streamed, with the 413 in the place of whatever the app made of the cut."""

import json

import pytest
from fastapi import FastAPI, Request
from starlette.types import Receive, Scope, Send

from servicekit.limits import BodyLimit
from servicekit.problems import install_problem_handlers
from services.servicekit.tests.asgi import Caller, scope


def limited(**given: int) -> BodyLimit:
    """An app that answers with the size of the body it read."""
    app = FastAPI()
    install_problem_handlers(app)

    @app.post("/{rest:path}")
    async def size(request: Request) -> int:
        return len(await request.body())

    return BodyLimit(app, max_bytes=10, paths={"/large": 100}, **given)  # type: ignore[arg-type]


async def post(caller: Caller, path: str = "/", length: str | None = None) -> Caller:
    """One request."""
    headers = [("content-length", length)] if length is not None else []
    await limited()(scope(path, headers), caller.receive, caller.send)  # type: ignore[arg-type]
    return caller


async def test_a_body_at_the_limit_goes_through() -> None:
    """Declared and streamed."""
    assert (await post(Caller(b"x" * 10), length="10")).status == 200
    found = await post(Caller(b"x" * 4, b"x" * 6))
    assert (found.status, found.body) == (200, b"10")


async def test_a_declared_body_over_the_limit_is_refused_unread() -> None:
    """413 as problem+json with the limit; the connection is closed, for the rest of the body is still on its way."""
    caller = await post(Caller(b"x" * 11), length="11")
    assert (caller.status, caller.read) == (413, 0)
    found = json.loads(caller.body)
    assert (found["code"], found["limit"]) == ("body_too_large", 10)
    headers = dict(caller.sent[0]["headers"])
    assert headers[b"connection"] == b"close"
    assert headers[b"content-type"] == b"application/problem+json"


async def test_a_streamed_body_is_refused_when_the_count_passes_the_limit() -> None:
    """What comes after is not read, and there is one answer only."""
    caller = await post(Caller(*[b"xxxx"] * 50))
    assert (caller.status, caller.read) == (413, 3)


async def test_a_body_longer_than_it_declares_is_counted() -> None:
    """A small `Content-Length` does not open the door."""
    assert (await post(Caller(b"x" * 50), length="5")).status == 413


@pytest.mark.parametrize("length", ["-1", "x", "", "1e3", "٣"])
async def test_a_length_that_is_none_is_not_believed(length: str) -> None:
    """The count decides."""
    caller = Caller(b"x" * 50)
    await limited()({**scope("/"), "headers": [(b"content-length", length.encode())]}, caller.receive, caller.send)  # type: ignore[arg-type]
    assert caller.status == 413


async def test_a_path_can_have_its_own_limit() -> None:
    """The named path, and no other."""
    assert (await post(Caller(b"x" * 100), "/large")).status == 200
    assert (await post(Caller(b"x" * 101), "/large")).status == 413
    assert (await post(Caller(b"x" * 11), "/large/other")).status == 413


async def test_other_kinds_of_connection_pass() -> None:
    """The lifespan has no body."""
    seen = []

    async def app(connection: Scope, receive: Receive, send: Send) -> None:
        seen.append(connection["type"])

    caller = Caller()
    await BodyLimit(app, max_bytes=1)({"type": "lifespan"}, caller.receive, caller.send)  # type: ignore[arg-type]
    assert seen == ["lifespan"]


async def test_an_answer_that_has_begun_is_not_replaced() -> None:
    """An app that answers while it still reads keeps its answer; the cut reaches the server as an error."""

    async def app(connection: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await receive()

    caller = Caller(*[b"x" * 8] * 5)
    with pytest.raises(Exception, match=r"^$"):
        await BodyLimit(app, max_bytes=10)(scope(), caller.receive, caller.send)  # type: ignore[arg-type]
    assert caller.status == 200
