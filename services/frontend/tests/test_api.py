"""The pages' API: whose token goes where, what is asked for, what comes back."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from services.frontend.tests.fakes import GATEWAY, NOW, Chunks, FakeOutside, answer
from services.frontend.tests.serving import browsing
from services.servicekit.tests.asgi import Caller, scope

EVENTS = {"Content-Type": "text/event-stream"}
PROBLEM = {"Content-Type": "application/problem+json"}
HYBRID = b'event: hybrid\ndata: {"results": []}\n\n'
DONE = b"event: done\ndata: {}\n\n"


@pytest.mark.parametrize(("view", "top_k"), [("chat", 10), ("glossary", 5), ("diagnosis", 8), ("inspector", 10)])
@pytest.mark.parametrize("path", ["/api/search", "/api/search/stream"])
async def test_each_view_asks_for_its_own_number(view: str, top_k: int, path: str) -> None:
    """Unless the person chose one."""
    async with browsing() as browser:
        await browser.log_in()
        await browser.post(path, query=" x ", view=view)
        assert browser.outside.body(GATEWAY) == {"query": "x", "top_k": top_k, "rerank": True}
        assert browser.outside.last(GATEWAY).url.path == path.removeprefix("/api")
        await browser.post(path, query="x", view=view, top_k=3, rerank=False, deadline_ms=500, explain=True)
        assert browser.outside.body(GATEWAY) == {"query": "x", "top_k": 3, "rerank": False, "deadline_ms": 500, "explain": True}


@pytest.mark.parametrize(
    "body",
    [{}, {"query": " "}, {"query": "x" * 4097}, {"query": "x", "top_k": 51}, {"query": "x", "filters": {}}, {"query": "x", "view": "y"}],
)
async def test_what_the_pages_never_send_is_refused_here(body: dict[str, Any]) -> None:
    """422 before the gateway is asked."""
    async with browsing() as browser:
        await browser.log_in()
        response = await browser.post("/api/search", **body)
        assert (response.status_code, response.json()["code"]) == (422, "invalid_request")
        assert GATEWAY not in browser.outside.seen


@pytest.mark.parametrize("path", ["/api/search", "/api/search/stream", "/api/answer"])
async def test_a_call_needs_a_session_and_its_csrf_token(path: str) -> None:
    """401 and 403, before the gateway is asked."""
    async with browsing() as browser:
        await browser.open("/login")
        assert (await browser.post(path, query="x")).status_code == 401
        await browser.log_in()
        browser.csrf = ""
        response = await browser.post(path, query="x")
        assert (response.status_code, response.json()["code"]) == (403, "csrf")
        assert GATEWAY not in browser.outside.seen


async def test_nothing_of_the_session_but_the_token_goes_to_the_gateway() -> None:
    """No cookie, and the trace goes on."""
    async with browsing() as browser:
        await browser.log_in()
        await browser.post("/api/search", query="x")
        headers = browser.outside.last(GATEWAY).headers
    assert "cookie" not in headers
    assert headers["Authorization"].startswith("Bearer ey")
    assert "traceparent" in headers


async def test_an_answer_comes_back_as_it_is() -> None:
    """With the header of a fallback."""
    outside = FakeOutside()
    outside.answers[GATEWAY] = httpx.Response(
        200, json=answer(ranking="hybrid"), headers={"X-Reranker-Fallback": "deadline", "Set-Cookie": "a=b"}
    )
    async with browsing(outside) as browser:
        await browser.log_in()
        response = await browser.post("/api/search", query="x")
    assert response.json() == answer(ranking="hybrid")
    assert response.headers["X-Reranker-Fallback"] == "deadline"
    assert "set-cookie" not in response.headers


@pytest.mark.parametrize("path", ["/api/search", "/api/search/stream"])
@pytest.mark.parametrize(
    ("given", "status", "code"),
    [
        (httpx.Response(422, json={"code": "invalid_request"}, headers=PROBLEM), 422, "invalid_request"),
        (httpx.Response(503, json={"code": "overloaded"}, headers={**PROBLEM, "Retry-After": "1"}), 503, "overloaded"),
        (httpx.Response(401, json={"code": "unauthenticated"}, headers=PROBLEM), 401, "session_over"),
        (httpx.Response(200, text="<html>", headers={"Content-Type": "text/html"}), 502, "gateway_unavailable"),
        (httpx.Response(302, headers={"Location": "http://evil.example", "Content-Type": "application/json"}), 502, "gateway_unavailable"),
        (httpx.Response(200, content=b"x" * (9 << 20), headers={"Content-Type": "application/json"}), 502, "gateway_unavailable"),
        (httpx.ConnectError("refused"), 502, "gateway_unavailable"),
        (httpx.ReadTimeout("late"), 504, "gateway_timeout"),
    ],
)
async def test_refusals_and_failures_of_the_gateway(path: str, given: Any, status: int, code: str) -> None:
    """Its own problems come through; what is none becomes one."""
    outside = FakeOutside()
    outside.answers[GATEWAY] = given
    async with browsing(outside) as browser:
        await browser.log_in()
        response = await browser.post(path, query="x")
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert response.headers.get("Retry-After") == ("1" if code == "overloaded" else None)


async def test_events_come_through_as_they_come() -> None:
    """The base order is with the browser while the gateway still reranks; then the stream is closed."""
    outside, go_on = FakeOutside(), asyncio.Event()
    stream = Chunks([HYBRID, go_on, DONE])
    outside.answers[GATEWAY] = httpx.Response(200, stream=stream, headers=EVENTS)
    async with browsing(outside) as browser:
        await browser.log_in()
        cookie = "; ".join(f"{name}={value}" for name, value in browser.http.cookies.items())
        headers = [("Cookie", cookie), ("X-CSRF-Token", browser.csrf), ("Content-Type", "application/json")]
        caller = Caller(json.dumps({"query": "x"}).encode())
        served = asyncio.create_task(browser.app(scope("/api/search/stream", headers), caller.receive, caller.send))
        async with asyncio.timeout(10):
            await stream.waiting.wait()
            assert caller.body == HYBRID
            assert not served.done()
            go_on.set()
            await served
    assert caller.body == HYBRID + DONE
    assert stream.closed


async def test_who_goes_away_ends_the_stream() -> None:
    """The gateway is not left searching for nobody."""
    outside = FakeOutside()
    stream = Chunks([HYBRID, asyncio.Event()])
    outside.answers[GATEWAY] = httpx.Response(200, stream=stream, headers=EVENTS)
    async with browsing(outside) as browser:
        await browser.log_in()
        cookie = "; ".join(f"{name}={value}" for name, value in browser.http.cookies.items())
        headers = [("Cookie", cookie), ("X-CSRF-Token", browser.csrf), ("Content-Type", "application/json")]
        caller = Caller(json.dumps({"query": "x"}).encode())
        served = asyncio.create_task(browser.app(scope("/api/search/stream", headers), caller.receive, caller.send))
        async with asyncio.timeout(10):
            await stream.waiting.wait()
            assert caller.body == HYBRID
            caller.leave()
            await served
    assert stream.closed


@pytest.mark.parametrize("broken", [httpx.ReadError("reset"), httpx.ReadTimeout("late"), b"x" * (9 << 20)])
async def test_a_stream_that_breaks_off_says_so(broken: Any) -> None:
    """The page gets `error` and `done`, as if the gateway had said them."""
    outside = FakeOutside()
    outside.answers[GATEWAY] = httpx.Response(200, stream=Chunks([HYBRID, b"event: rer", broken]), headers=EVENTS)
    async with browsing(outside) as browser:
        await browser.log_in()
        text = (await browser.post("/api/search/stream", query="x")).text
    assert text.startswith(HYBRID.decode())
    error, done = text.rstrip().rsplit("\n\n", 2)[-2:]
    assert error.startswith("event: error\ndata: {")
    assert json.loads(error.split("data: ")[1])["code"] in ("gateway_unavailable", "gateway_timeout")
    assert done == "event: done\ndata: {}"


async def test_answers_are_off_by_default() -> None:
    """404, and nobody is asked."""
    async with browsing() as browser:
        await browser.log_in()
        assert (await browser.post("/api/answer", query="x")).json()["code"] == "answers_off"
        assert browser.outside.seen == {}


@pytest.mark.parametrize("persona", ["reader", "nobody"])
async def test_the_console_is_for_operators(persona: str) -> None:
    """403 for others, before anything is asked."""
    async with browsing(prometheus_url="http://prometheus.test", traces_url="http://traces.test") as browser:
        assert (await browser.http.get("/api/console")).status_code == 401
        await browser.log_in(persona)
        assert (await browser.http.get("/api/console")).status_code == 403
        assert browser.outside.seen == {}
        assert browser.clock.now == NOW
