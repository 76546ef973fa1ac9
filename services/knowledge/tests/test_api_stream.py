"""`POST /search/stream`: which events come in which order, what an error is before and after the first, what a caller who leaves ends."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from structlog.testing import capture_logs

from knowledge import telemetry as names
from knowledge.api import stream
from knowledge.errors import FallbackReason
from knowledge.models import Leg, Reranking
from services.knowledge.tests.fakes import FakeBackend, FakeReranker, failing, record, reranking
from services.knowledge.tests.serving import CORPUS, Served, bearer, points, served

MARKER = "Zwiebelkuchen"
OPERATOR = bearer(roles=("reader", "knowledge-operator"))
CHANGING = {"elapsed_ms", "trace_id"}


def events(text: str) -> list[tuple[str, dict[str, Any]]]:
    """(name, data) of each event; the framing is checked to the last character."""
    assert text.endswith("\n\n")
    found = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        assert name.startswith("event: ")
        assert data.startswith("data: ")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


async def ask(gateway: Served, body: dict[str, Any] | None = None, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    """One streamed search."""
    return await gateway.http.post("/search/stream", json={"query": "wasser", **(body or {}), **fields}, headers=headers or bearer())


def settled(body: dict[str, Any]) -> dict[str, Any]:
    """An answer without what differs between two searches that find the same."""
    report = body["rerank"] and {**body["rerank"], "elapsed_ms": 0}
    scopes = [{**one, "rerank": {**one["rerank"], "elapsed_ms": 0}} for one in body["scopes"]]
    return {**{name: value for name, value in body.items() if name not in CHANGING}, "rerank": report, "scopes": scopes}


def order(body: dict[str, Any]) -> list[str]:
    """The ids of a list."""
    return [one["id"] for one in body["results"]]


def server_span(gateway: Served) -> ReadableSpan:
    """The one span of the stream."""
    [span] = [one for one in gateway.spans.get_finished_spans() if one.kind is SpanKind.SERVER]
    assert span.name == "POST /search/stream"
    return span


async def test_hybrid_then_reranked_then_done() -> None:
    """The first list is that of `rerank: false` and says nothing of reranking; the second event is the answer of `POST /search`."""
    async with served(FakeBackend(CORPUS)) as gateway:
        response = await ask(gateway)
        assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert (response.headers["cache-control"], response.headers["x-accel-buffering"]) == ("no-store", "no")
        (first, hybrid), (second, reranked), last = events(response.text)
        assert (first, second, last) == ("hybrid", "reranked", ("done", {}))
        assert (hybrid["ranking"], hybrid["rerank"]) == ("hybrid", None)
        assert hybrid["results"] == (await gateway.search(rerank=False)).json()["results"]
        assert settled(reranked) == settled((await gateway.search()).json())
        assert order(reranked) != order(hybrid)
        assert hybrid["trace_id"] == reranked["trace_id"]
        assert hybrid["trace_id"].strip("0")


def partial(_: str, __: Any) -> Reranking:
    """A provider that ran out of time."""
    return reranking({3: 0.5}, [(0, "deadline")])


@pytest.mark.parametrize(
    ("script", "fields", "event", "status"),
    [
        (partial, {}, "reranked", "partial"),
        (failing(FallbackReason.TRANSPORT), {}, "fallback", "fallback"),
        (failing(FallbackReason.MISCONFIGURED, 401), {}, "fallback", "fallback"),
        (partial, {"rerank": False}, "skipped", "skipped"),
    ],
)
async def test_the_second_event_is_named_for_the_outcome(script: Any, fields: dict[str, Any], event: str, status: str) -> None:
    """Exactly one of them, with the whole answer; a partial one is a reranked one."""
    async with served(FakeBackend(CORPUS), reranker=FakeReranker(script)) as gateway:
        found = events((await ask(gateway, fields)).text)
        assert [name for name, _ in found] == ["hybrid", event, "done"]
        assert found[1][1]["rerank"]["status"] == status
        assert settled(found[1][1]) == settled((await gateway.search(fields)).json())
        if event != "reranked":
            assert found[1][1]["results"] == found[0][1]["results"]


async def test_scopes_and_explanations_come_in_a_stream_too() -> None:
    """Each scope of the first event has no report; the receipt comes with the last answer, for operators."""
    scopes = [{"name": "b", "top_k": 2}, {"name": "a"}]
    async with served(FakeBackend(CORPUS)) as gateway:
        (_, hybrid), (_, reranked), _ = events((await ask(gateway, {"scopes": scopes, "explain": True}, OPERATOR)).text)
        assert [(scope["name"], len(scope["results"]), scope["rerank"]) for scope in hybrid["scopes"]] == [("b", 2, None), ("a", 5, None)]
        assert [scope["rerank"]["status"] for scope in reranked["scopes"]] == ["applied", "applied"]
        assert "receipt" not in hybrid
        assert {line["scope"] for line in reranked["receipt"]["head"]} == {"a", "b"}


async def test_the_first_event_is_sent_before_the_provider_has_answered() -> None:
    """Over ASGI, message by message: the hybrid list is out while the reranker still thinks."""
    reranker = FakeReranker()
    reranker.hold = asyncio.Event()
    async with served(FakeBackend(CORPUS), reranker=reranker) as gateway:
        caller = Caller(gateway)
        call = asyncio.create_task(caller.ask())
        await reranker.asked.wait()
        assert [name for name, _ in events(caller.text)] == ["hybrid"]
        reranker.hold.set()
        await call
        assert [name for name, _ in events(caller.text)] == ["hybrid", "reranked", "done"]
        assert gateway.app.state.gateway.searches_in_flight == 0


BEFORE: dict[str, tuple[Callable[[Served], None], dict[str, Any], dict[str, str], int, str]] = {
    "a limit": (lambda _: None, {"top_k": 0}, bearer(), 422, "invalid_request"),
    "a limit of the settings": (lambda _: None, {"rerank_depth": 16}, bearer(), 422, "invalid_request"),
    "an unknown field": (lambda _: None, {"topk": 5}, bearer(), 422, "invalid_request"),
    "no token": (lambda _: None, {}, {"Authorization": ""}, 401, "unauthenticated"),
    "no leg": (lambda gateway: setattr(gateway.backend, "failed", set(Leg)), {}, bearer(), 503, "search_unavailable"),
    "no place": (lambda gateway: setattr(gateway.app.state.gateway, "searches_in_flight", 64), {}, bearer(), 503, "overloaded"),
    "no time": (
        lambda gateway: setattr(gateway.backend, "hold", asyncio.Event()),
        {"deadline_ms": 100},
        bearer(),
        504,
        "deadline_exceeded",
    ),
    "a bug": (lambda gateway: setattr(gateway.backend, "asked", None), {}, bearer(), 500, "internal"),
}


@pytest.mark.parametrize("kind", BEFORE)
async def test_an_error_before_the_first_event_is_an_ordinary_problem(kind: str) -> None:
    """With its status, as `POST /search` answers it; the place is free again, and the span says that there was no fallback."""
    bring_about, body, headers, status, code = BEFORE[kind]
    async with served(FakeBackend(CORPUS)) as gateway:
        bring_about(gateway)
        places = gateway.app.state.gateway.searches_in_flight
        response = await ask(gateway, body, headers)
        assert (response.status_code, response.json()["code"]) == (status, code)
        assert response.headers["content-type"] == "application/problem+json"
        assert gateway.app.state.gateway.searches_in_flight == places
        assert dict(server_span(gateway).attributes or {})[names.RERANKER_FALLBACK] is False


def broken(_: str, __: Any) -> Reranking:
    """Not a failure of the provider's: an answer that nothing was written for."""
    return Reranking(None, MARKER, MARKER)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("script", "given", "status", "code"),
    [
        (failing(FallbackReason.MISCONFIGURED, 401), {"reranker_permanent_errors": "error"}, 502, "reranker_misconfigured"),
        (broken, {}, 500, "internal"),
    ],
)
async def test_an_error_after_the_first_event_is_the_second(script: Any, given: dict[str, Any], status: int, code: str) -> None:
    """A problem object without internals, then `done`; the span is an error and the log holds no text."""
    with capture_logs() as logs:
        async with served(FakeBackend(CORPUS), reranker=FakeReranker(script), **given) as gateway:
            response = await ask(gateway)
            found = events(response.text)
            assert [name for name, _ in found] == ["hybrid", "error", "done"]
            problem = found[1][1]
            assert (problem["status"], problem["code"], problem["trace_id"]) == (status, code, found[0][1]["trace_id"])
            assert MARKER not in response.text
            span = server_span(gateway)
            assert (span.status.status_code, dict(span.attributes or {})[names.ERROR_TYPE]) == (StatusCode.ERROR, code)
            assert gateway.app.state.gateway.searches_in_flight == 0
    assert MARKER not in str(logs)
    assert [line["error"] for line in logs if line["event"] == "internal_error"] == (["TypeError"] if code == "internal" else [])


async def test_a_stream_is_one_search_in_span_metric_and_log() -> None:
    """The span lasts as long as the stream and says what that of `POST /search` says; the fallback is counted and logged once."""
    reranker = FakeReranker(failing(FallbackReason.LOADING))
    with capture_logs() as logs:
        async with served(FakeBackend(CORPUS), reranker=reranker) as gateway:
            await ask(gateway)
            found = dict(server_span(gateway).attributes or {})
            assert (found[names.RERANKER_FALLBACK], found[names.FALLBACK_REASON]) == (True, "loading")
            assert found[names.CANDIDATE_COUNT] == 15
            assert found[names.RERANKER_TIME_LEFT_S] == pytest.approx(30, abs=5)
            assert [point.value for _, point in points(gateway.metrics, names.SEARCHES)] == [1]
            assert [point.value for _, point in points(gateway.metrics, names.FALLBACKS)] == [1]
    assert len([line for line in logs if line["event"] == names.FALLBACK_EVENT]) == 1


async def test_a_stream_takes_a_place_until_its_end() -> None:
    """While the provider thinks, the next search is refused; afterwards it is served."""
    reranker = FakeReranker()
    reranker.hold = asyncio.Event()
    async with served(FakeBackend(CORPUS), reranker=reranker, max_concurrent_searches=1) as gateway:
        call = asyncio.create_task(Caller(gateway).ask())
        await reranker.asked.wait()
        assert (await ask(gateway)).json()["code"] == "overloaded"
        reranker.hold.set()
        await call
        assert (await ask(gateway)).status_code == 200


class Caller:
    """A caller of the bare ASGI app, who sees each message as it is sent and may leave."""

    def __init__(self, gateway: Served, on_body: Callable[[], Awaitable[None]] | None = None) -> None:
        self.app = gateway.app
        self.leaving = asyncio.Event()
        self.sent: list[dict[str, Any]] = []
        self._on_body = on_body
        self._request = [{"type": "http.request", "body": json.dumps({"query": MARKER}).encode(), "more_body": False}]

    @property
    def text(self) -> str:
        """The body so far."""
        return b"".join(message.get("body", b"") for message in self.sent).decode()

    @property
    def statuses(self) -> list[int]:
        """What was said of the status, in order."""
        return [message["status"] for message in self.sent if message["type"] == "http.response.start"]

    async def ask(self) -> None:
        """One streamed search, to its end."""
        headers = [(b"authorization", bearer()["Authorization"].encode()), (b"content-type", b"application/json"), (b"host", b"gateway")]
        scope = {"type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": "POST",
                 "path": "/search/stream", "raw_path": b"/search/stream", "query_string": b"", "root_path": "", "scheme": "http",
                 "server": ("gateway", 80), "client": ("127.0.0.1", 5), "headers": headers}  # fmt: skip
        await self.app(scope, self._receive, self._send)  # type: ignore[arg-type]

    async def _receive(self) -> dict[str, Any]:
        if self._request:
            return self._request.pop()
        await self.leaving.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body" and self._on_body is not None:
            await self._on_body()


TWO = [record("a", MARKER), record("b", MARKER)]


async def held_in(where: str, gateway: Served, caller: Caller) -> AsyncIterator[None]:
    """The place where the search stands still when its caller leaves."""
    hold = asyncio.Event()
    if where == "retrieval":
        gateway.backend.hold = hold
        yield
        await gateway.backend.searching.wait()
    elif where == "reranking":
        gateway.reranker.hold = hold
        yield
        await gateway.reranker.asked.wait()
    else:
        reading = asyncio.Event()

        async def read_nothing() -> None:
            reading.set()
            await hold.wait()

        caller._on_body = read_nothing
        yield
        await reading.wait()


@pytest.mark.parametrize("where", ["retrieval", "reranking", "sending"])
async def test_a_caller_who_leaves_cancels_the_work(where: str) -> None:
    """Wherever it stands: what is in flight ends, the outcome is `cancelled`, the place is free, the access log says 499."""
    with capture_logs() as logs:
        async with served(FakeBackend(TWO), max_concurrent_searches=1) as gateway:
            caller = Caller(gateway)
            held = held_in(where, gateway, caller)
            await anext(held)
            call = asyncio.create_task(caller.ask())
            assert await anext(held, None) is None
            caller.leaving.set()
            await call
            assert gateway.backend.cancelled is (where == "retrieval")
            assert gateway.reranker.cancelled is (where == "reranking")
            assert gateway.app.state.gateway.searches_in_flight == 0
            assert caller.statuses[-1] == 499
            found = dict(server_span(gateway).attributes or {})
            assert (found[names.RERANKER_OUTCOME], found[names.RERANKER_FALLBACK]) == ("cancelled", False)
            assert [labels for labels, _ in points(gateway.metrics, names.SEARCHES)] == [{names.RERANKER_OUTCOME: "cancelled"}]
    [line] = [line for line in logs if line["event"] == "request"]
    assert (line["status"], line["route"]) == (499, "/search/stream")
    assert MARKER not in str(logs)


async def test_a_caller_who_reads_nothing_keeps_no_place_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A little beyond the deadline the stream is given up, though the connection stands."""
    monkeypatch.setattr(stream, "LINGER_S", -29.9)
    with capture_logs() as logs:
        async with served(FakeBackend(TWO)) as gateway:
            caller = Caller(gateway, asyncio.Event().wait)  # type: ignore[arg-type]
            await asyncio.wait_for(caller.ask(), 5)
            assert gateway.app.state.gateway.searches_in_flight == 0
    assert any(line["event"] == "search.stream_not_read" for line in logs)


async def test_the_stream_is_described() -> None:
    """Its media type, its events and its problems stand in the description of the API."""
    async with served(FakeBackend(CORPUS)) as gateway:
        described = (await gateway.http.get("/openapi.json")).json()["paths"]["/search/stream"]["post"]
    assert list(described["responses"]["200"]["content"]) == ["text/event-stream"]
    assert {"401", "422", "503", "504"} <= set(described["responses"])
    for event in ("hybrid", "reranked", "fallback", "skipped", "error", "done"):
        assert f"`{event}`" in described["responses"]["200"]["description"]
