"""The reranker-service's client: every failure of the wire and every kind of garbage, through the stage, as the caller would see it."""

import asyncio
import json
from collections.abc import Awaitable
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider

from knowledge.adapters.http import new_client
from knowledge.adapters.rerankers.sidecar import SidecarReranker
from knowledge.deadline import Deadline
from knowledge.errors import FallbackReason, RerankerRefused, RerankError
from knowledge.models import Outcome, PartialReason, ScoreKind
from knowledge.rerank import LATCH_PROBE_S, RerankStage, Scores
from services.knowledge.tests.fakes import FakeClock
from services.knowledge.tests.serving import new_stage
from services.knowledge.tests.wires import Answer, Wire, always, listening, never, raising, reset, saying, too_large, unused_port

URL = "http://reranker"
TRACER = TracerProvider().get_tracer("test")
DOCUMENTS = ["eins", "zwei", "drei"]


def body(results: object = None, **fields: object) -> dict[str, Any]:
    """The service's answer, best first."""
    found = [{"index": 2, "score": 0.9}, {"index": 0, "score": 0.5}, {"index": 1, "score": 0.1}] if results is None else results
    return {"status": "complete", "results": found, "unscored": [], "model": "m", "score_kind": "probability", **fields}


def over(answer: Answer, **given: Any) -> tuple[RerankStage, Wire, FakeClock]:
    """The stage over the adapter over a scripted wire."""
    clock, wire = FakeClock(), Wire(answer)
    return new_stage(SidecarReranker(URL, client=wire.client()), clock, **given), wire, clock


def in_turn(*answers: Answer) -> Answer:
    """One answer after the other."""
    left = list(answers)

    def answer(request: httpx.Request) -> httpx.Response | Awaitable[httpx.Response]:
        return left.pop(0)(request)

    return answer


async def score(stage: RerankStage, clock: FakeClock, seconds: float = 30.0) -> Scores:
    """One search's reranking."""
    return await stage.score("frage", DOCUMENTS, Deadline.after(seconds, clock))


async def outcome(answer: Answer, seconds: float = 30.0) -> tuple[Outcome, object]:
    """Status and reason of one reranking over this wire."""
    stage, _, clock = over(answer)
    report = (await score(stage, clock, seconds)).report
    return report.status, report.reason


async def test_a_good_answer_is_applied() -> None:
    """Scores are mapped back by index; model and score kind are the service's."""
    stage, _, clock = over(always(json=body()))
    found = await score(stage, clock)
    assert found.by_index == {0: 0.5, 1: 0.1, 2: 0.9}
    assert (found.report.model, found.report.score_kind) == ("m", ScoreKind.PROBABILITY)
    assert (found.report.provider, found.report.status) == ("sidecar", Outcome.APPLIED)


async def test_what_is_sent() -> None:
    """Query, documents and the wish for a partial answer; the deadline as time left, 150 ms below the wait; no key without one."""
    stage, wire, clock = over(always(json=body()))
    await score(stage, clock, 10.0)
    [request] = wire.requests
    assert (request.method, str(request.url)) == ("POST", f"{URL}/rerank")
    assert json.loads(request.content) == {"query": "frage", "documents": DOCUMENTS, "allow_partial": True}
    assert 9798 <= int(request.headers["X-Deadline-Ms"]) <= 9800
    assert "authorization" not in request.headers


async def test_key_and_model_are_sent_where_they_are_set() -> None:
    """RERANKER_API_KEY as a bearer token, RERANKER_MODEL in the body."""
    wire = Wire(always(json=body()))
    await SidecarReranker(f"{URL}/", api_key="k", model="mm", client=wire.client()).rerank("q", DOCUMENTS, 1.0)
    [request] = wire.requests
    assert request.headers["authorization"] == "Bearer k"
    assert json.loads(request.content)["model"] == "mm"
    assert str(request.url) == f"{URL}/rerank"


@pytest.mark.parametrize(
    ("status", "content", "reason"),
    [
        (503, {"status": "timeout", "retry_after_ms": 10}, FallbackReason.DEADLINE),
        (503, {"status": "loading", "retry_after_ms": 10}, FallbackReason.LOADING),
        (503, {"status": "busy", "retry_after_ms": 10}, FallbackReason.OVERLOADED),
        (503, {"status": "strange"}, FallbackReason.HTTP_STATUS),
        (503, {"status": ["loading"]}, FallbackReason.HTTP_STATUS),
        (503, ["loading"], FallbackReason.HTTP_STATUS),
        (500, {}, FallbackReason.HTTP_STATUS),
        (502, {}, FallbackReason.HTTP_STATUS),
        (504, {}, FallbackReason.HTTP_STATUS),
        (429, {"status": "busy"}, FallbackReason.OVERLOADED),
        (401, {}, FallbackReason.MISCONFIGURED),
        (402, {}, FallbackReason.MISCONFIGURED),
        (403, {}, FallbackReason.MISCONFIGURED),
        (404, {}, FallbackReason.MISCONFIGURED),
        (498, {}, FallbackReason.MISCONFIGURED),
        (400, {}, FallbackReason.REJECTED),
        (413, {}, FallbackReason.REJECTED),
        (422, {"code": "scored_chars_exceeded"}, FallbackReason.REJECTED),
        (204, {}, FallbackReason.HTTP_STATUS),
        (405, {}, FallbackReason.HTTP_STATUS),
        (418, {}, FallbackReason.HTTP_STATUS),
    ],
)
async def test_each_status_has_its_reason(status: int, content: object, reason: FallbackReason) -> None:
    """The table of the design, status by status."""
    assert await outcome(always(status, json=content)) == (Outcome.FALLBACK, reason)


@pytest.mark.parametrize("text", ["", "<html>busy</html>", "[" * 100_000, "\xff"])
async def test_a_503_that_is_not_json_is_http_status(text: str) -> None:
    """A proxy's page in between says nothing about the model."""
    assert await outcome(always(503, text=text)) == (Outcome.FALLBACK, FallbackReason.HTTP_STATUS)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(status: int) -> None:
    """A redirect would carry passages elsewhere: it is an odd status and nothing more."""
    stage, wire, clock = over(always(status, headers={"Location": "http://evil.example/"}))
    assert (await score(stage, clock)).report.reason is FallbackReason.HTTP_STATUS
    assert len(wire.requests) == 1


def test_the_shared_client_follows_no_redirects_and_no_environment() -> None:
    """The client that the product makes itself."""
    client = new_client()
    assert client.follow_redirects is False
    assert client.trust_env is False


GARBAGE: dict[str, httpx.Response] = {
    "more results than sent": httpx.Response(200, json=body([{"index": n, "score": 0.1} for n in range(4)])),
    "duplicate index": httpx.Response(200, json=body([{"index": 0, "score": 0.1}, {"index": 0, "score": 0.2}])),
    "negative index": httpx.Response(200, json=body([{"index": -1, "score": 0.1}])),
    "index out of range": httpx.Response(200, json=body([{"index": 3, "score": 0.1}])),
    "boolean index": httpx.Response(200, json=body([{"index": True, "score": 0.1}])),
    "float index": httpx.Response(200, text=json.dumps(body([{"index": 1.0, "score": 0.1}]))),
    "string index": httpx.Response(200, json=body([{"index": "1", "score": 0.1}])),
    "NaN": httpx.Response(200, text=json.dumps(body([{"index": 0, "score": float("nan")}]))),
    "Infinity": httpx.Response(200, text=json.dumps(body([{"index": 0, "score": float("inf")}]))),
    "1e999": httpx.Response(200, text=json.dumps(body([{"index": 0, "score": 0.25}])).replace("0.25", "1e999")),
    "400 digits": httpx.Response(200, text=json.dumps(body([{"index": 0, "score": 0.25}])).replace("0.25", "1" * 400)),
    "5000 digits": httpx.Response(200, text=json.dumps(body([{"index": 0, "score": 0.25}])).replace("0.25", "1" * 5000)),
    "string score": httpx.Response(200, json=body([{"index": 0, "score": "0.1"}])),
    "null score": httpx.Response(200, json=body([{"index": 0, "score": None}])),
    "boolean score": httpx.Response(200, json=body([{"index": 0, "score": True}])),
    "no index": httpx.Response(200, json=body([{"score": 0.1}])),
    "no score": httpx.Response(200, json=body([{"index": 0}])),
    "results are pairs": httpx.Response(200, json=body([[0, 0.1]])),
    "results are null": httpx.Response(200, json={**body(), "results": None}),
    "results are an object": httpx.Response(200, json={**body(), "results": {"0": 0.1}}),
    "results are a number": httpx.Response(200, json={**body(), "results": 7}),
    "no results": httpx.Response(200, json=body([])),
    "unscored is null": httpx.Response(200, json=body([], unscored=None)),
    "unscored is a number": httpx.Response(200, json=body([], unscored=7)),
    "no model": httpx.Response(200, json={key: value for key, value in body().items() if key != "model"}),
    "strange score kind": httpx.Response(200, json=body(score_kind="stars")),
    "score kind is a list": httpx.Response(200, json=body(score_kind=[])),
    "HTML": httpx.Response(200, html="<html><body>It works!</body></html>"),
    "empty body": httpx.Response(200, content=b""),
    "JSON list": httpx.Response(200, json=[0.1, 0.2, 0.3]),
    "JSON null": httpx.Response(200, json=None),
    "JSON string": httpx.Response(200, json="ok"),
    "cut off": httpx.Response(200, text=json.dumps(body())[:-20]),
    "not UTF-8": httpx.Response(200, content=b'{"results": "\xff\xfe"}', headers={"content-type": "application/json"}),
    "endlessly nested": httpx.Response(200, text="[" * 100_000),
    "all of it nested": httpx.Response(200, text='{"results": ' + "[" * 100_000 + "]" * 100_000 + "}"),
}


@pytest.mark.parametrize("kind", GARBAGE)
async def test_garbage_is_malformed_response(kind: str) -> None:
    """Whatever comes with a 200 and is no answer falls back; nothing of it reaches the caller."""
    assert await outcome(lambda _: GARBAGE[kind]) == (Outcome.FALLBACK, FallbackReason.MALFORMED_RESPONSE)


async def test_a_huge_answer_is_malformed_response() -> None:
    """The decompressed size is capped: a small packet cannot fill the memory."""
    assert await outcome(lambda _: too_large(body())) == (Outcome.FALLBACK, FallbackReason.MALFORMED_RESPONSE)


async def test_an_answer_that_does_not_unpack_is_malformed_response() -> None:
    """A body that claims to be gzip and is not cannot be parsed; the connection was fine."""
    stage, _, clock = over(_plain)
    clientless = SidecarReranker(URL, client=Wire(_stream_of(b"not gzip at all")).client())
    with pytest.raises(RerankError) as caught:
        await clientless.rerank("q", DOCUMENTS, 1.0)
    assert caught.value.reason is FallbackReason.MALFORMED_RESPONSE
    assert (await score(stage, clock)).report.status is Outcome.APPLIED


def _plain(_: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json=body())


def _stream_of(raw: bytes) -> Answer:
    class Stream(httpx.AsyncByteStream):
        async def __aiter__(self):  # type: ignore[no-untyped-def]  # noqa: ANN204 - as httpx has it
            yield raw

    return lambda _: httpx.Response(200, headers={"content-encoding": "gzip"}, stream=Stream())


@pytest.mark.parametrize(
    ("results", "unscored", "reason"),
    [
        ([{"index": 0, "score": 0.5}], [{"index": 1, "reason": "deadline"}, {"index": 2, "reason": "deadline"}], PartialReason.DEADLINE),
        ([{"index": 0, "score": 0.5}], [{"index": 1, "reason": "empty"}, {"index": 2, "reason": "nan"}], PartialReason.UNSCORED),
        ([{"index": 0, "score": 0.5}], [{"index": 1, "reason": "settled"}, {"index": 2, "reason": "settled"}], PartialReason.UNSCORED),
        ([{"index": 0, "score": 0.5}], [], PartialReason.UNSCORED),
    ],
)
async def test_fewer_valid_results_are_partial(results: list[Any], unscored: list[Any], reason: PartialReason) -> None:
    """The scored part is used; the reason is the one that the service names."""
    assert await outcome(always(json=body(results, status="partial", unscored=unscored))) == (Outcome.PARTIAL, reason)


async def test_an_answer_with_nothing_scored_and_the_deadline_named_is_deadline() -> None:
    """None scored is a fallback."""
    left_out = [{"index": n, "reason": "deadline"} for n in range(3)]
    assert await outcome(always(json=body([], status="partial", unscored=left_out))) == (Outcome.FALLBACK, FallbackReason.DEADLINE)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (httpx.ConnectError, FallbackReason.TRANSPORT),
        (httpx.ReadError, FallbackReason.TRANSPORT),
        (httpx.WriteError, FallbackReason.TRANSPORT),
        (httpx.RemoteProtocolError, FallbackReason.TRANSPORT),
        (httpx.LocalProtocolError, FallbackReason.TRANSPORT),
        (httpx.CloseError, FallbackReason.TRANSPORT),
        (httpx.UnsupportedProtocol, FallbackReason.TRANSPORT),
        (httpx.ConnectTimeout, FallbackReason.TRANSPORT),
        (httpx.ReadTimeout, FallbackReason.CLIENT_TIMEOUT),
        (httpx.WriteTimeout, FallbackReason.CLIENT_TIMEOUT),
        (httpx.PoolTimeout, FallbackReason.CLIENT_TIMEOUT),
    ],
)
async def test_failures_of_the_wire(kind: type[httpx.TransportError], reason: FallbackReason) -> None:
    """Refused, reset, DNS and TLS are `transport`; no answer in time is `client_timeout`."""
    assert await outcome(raising(kind)) == (Outcome.FALLBACK, reason)


@pytest.mark.parametrize("url", ["http://", "http://[::bad", "reranker:8081", "http://rerank er"])
async def test_an_address_that_is_none_is_a_failure_of_the_wire(url: str) -> None:
    """A wrong RERANKER_URL is no error of the search."""
    reranker = SidecarReranker(url)
    with pytest.raises(RerankError) as caught:
        await reranker.rerank("q", DOCUMENTS, 0.5)
    assert caught.value.reason is FallbackReason.TRANSPORT
    await reranker.aclose()


async def test_a_slow_service_is_a_client_timeout_when_the_wait_is_over() -> None:
    """The stage waits as long as it may, and no longer."""
    assert await outcome(never, 0.27) == (Outcome.FALLBACK, FallbackReason.CLIENT_TIMEOUT)


@pytest.mark.parametrize(
    ("kind", "tries"),
    [(httpx.ConnectError, 2), (httpx.ReadError, 2), (httpx.RemoteProtocolError, 2), (httpx.ReadTimeout, 1), (httpx.ConnectTimeout, 1)],
)
async def test_one_retry_at_most_and_none_after_a_time_out(kind: type[httpx.TransportError], tries: int) -> None:
    """A broken connection is tried once more; a time-out is not."""
    stage, wire, clock = over(raising(kind))
    await score(stage, clock)
    assert len(wire.requests) == tries


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_an_answer_is_never_asked_for_again(status: int) -> None:
    """A status is an answer: retrying it would only add load."""
    stage, wire, clock = over(always(status, json={"status": "busy"}))
    await score(stage, clock)
    assert len(wire.requests) == 1


async def test_a_retry_that_succeeds_is_a_success() -> None:
    """One stale connection is no fallback."""
    stage, wire, clock = over(in_turn(raising(httpx.ReadError), always(json=body())))
    assert (await score(stage, clock)).report.status is Outcome.APPLIED
    assert len(wire.requests) == 2


async def test_a_retry_ends_with_the_time_left() -> None:
    """If the second try hangs, the wait of the whole is over when it was over anyway."""
    stage, wire, clock = over(in_turn(raising(httpx.ConnectError), never))
    report = (await score(stage, clock, 0.4)).report
    assert report.reason is FallbackReason.CLIENT_TIMEOUT
    assert len(wire.requests) == 2


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_misconfigured_service_is_left_alone_for_thirty_seconds(status: int) -> None:
    """The latch, over the wire: one call, none for 30 s, one probe, and its success ends it."""
    answers = [httpx.Response(status), httpx.Response(200, json=body())]
    stage, wire, clock = over(lambda _: answers[0])
    for _ in range(4):
        assert (await score(stage, clock)).report.reason is FallbackReason.MISCONFIGURED
        clock.advance(LATCH_PROBE_S / 4 - 0.01)
    assert len(wire.requests) == 1
    answers.pop(0)
    clock.advance(1)
    assert (await score(stage, clock)).report.status is Outcome.APPLIED
    assert (await score(stage, clock)).report.status is Outcome.APPLIED
    assert len(wire.requests) == 3


async def test_permanent_errors_as_errors() -> None:
    """RERANKER_PERMANENT_ERRORS=error turns a 401 into a refusal of the search, and a 500 into nothing but a fallback."""
    stage, _, clock = over(always(401), reranker_permanent_errors="error")
    with pytest.raises(RerankerRefused):
        await score(stage, clock)
    stage, _, clock = over(always(500), reranker_permanent_errors="error")
    assert (await score(stage, clock)).report.reason is FallbackReason.HTTP_STATUS


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_rejected_request_is_never_latched(status: int) -> None:
    """The next search asks again."""
    stage, wire, clock = over(always(status))
    for _ in range(6):
        assert (await score(stage, clock)).report.reason is FallbackReason.REJECTED
    assert len(wire.requests) == 6


@pytest.mark.parametrize(
    ("answer", "opens"),
    [
        (always(500), True),
        (always(503, json={"status": "loading"}), True),
        (always(200, text="<html>"), True),
        (raising(httpx.ConnectTimeout), True),
        (always(503, json={"status": "timeout"}), True),
        (always(503, json={"status": "busy"}), False),
        (always(429), False),
        (always(422), False),
        (always(302), False),
    ],
)
async def test_what_opens_the_breaker_over_the_wire(answer: Answer, opens: bool) -> None:
    """Five failures that count stop the sixth call; what does not count goes on being asked."""
    stage, wire, clock = over(answer)
    for _ in range(6):
        await score(stage, clock)
    assert len(wire.requests) == (5 if opens else 6)
    assert ((await score(stage, clock)).report.reason is FallbackReason.CIRCUIT_OPEN) is opens


async def test_a_caller_that_goes_away_cancels_the_request() -> None:
    """The request on the wire ends with the task; the service can notice."""
    ended = asyncio.Event()
    started = asyncio.Event()

    async def hang(request: httpx.Request) -> httpx.Response:
        started.set()
        try:
            return await never(request)
        finally:
            ended.set()

    stage, _, clock = over(hang)
    task = asyncio.create_task(score(stage, clock))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def real(url: str, seconds: float = 5.0) -> Scores:
    """One reranking over a real socket, with the product's own client."""
    reranker, clock = SidecarReranker(url), FakeClock()
    try:
        return await score(new_stage(reranker, clock), clock, seconds)
    finally:
        await reranker.aclose()


async def test_a_refused_connection_on_a_real_socket() -> None:
    """Nobody listens: `transport`, at once."""
    found = await real(f"http://127.0.0.1:{unused_port()}")
    assert found.report.reason is FallbackReason.TRANSPORT


async def test_a_reset_connection_on_a_real_socket_is_tried_once_more() -> None:
    """A server that breaks off is asked twice and no more."""
    async with listening(reset) as server:
        found = await real(server.url)
        assert found.report.reason is FallbackReason.TRANSPORT
        assert server.count == 2


async def test_a_silent_server_on_a_real_socket() -> None:
    """A server that accepts and says nothing is a `client_timeout`, asked once."""

    async def silent(*_: object) -> None:
        await asyncio.Event().wait()

    async with listening(silent) as server:
        found = await real(server.url, 0.4)
        assert found.report.reason is FallbackReason.CLIENT_TIMEOUT
        assert server.count == 1


async def test_a_good_answer_on_a_real_socket() -> None:
    """The same answer as through the scripted wire."""
    async with listening(saying(json.dumps(body()).encode())) as server:
        assert (await real(server.url)).by_index == {0: 0.5, 1: 0.1, 2: 0.9}


async def test_a_body_shorter_than_promised_on_a_real_socket() -> None:
    """A connection that ends inside the answer is a broken connection."""

    async def short(writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
        await writer.drain()

    async with listening(short) as server:
        assert (await real(server.url)).report.reason is FallbackReason.TRANSPORT


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (raising(httpx.ReadTimeout), FallbackReason.CLIENT_TIMEOUT),
        (raising(httpx.ConnectError), FallbackReason.TRANSPORT),
        (always(500), FallbackReason.TRANSPORT),
        (always(200, text="<html>"), FallbackReason.MALFORMED_RESPONSE),
        (always(200, text="[" * 100_000), FallbackReason.MALFORMED_RESPONSE),
        (lambda _: too_large({}), FallbackReason.MALFORMED_RESPONSE),
    ],
)
async def test_an_info_that_cannot_be_had(answer: Answer, reason: FallbackReason) -> None:
    """`info` fails with a reason, never with an error of its own."""
    with pytest.raises(RerankError) as caught:
        await SidecarReranker(URL, client=Wire(answer).client()).info(1.0)
    assert caught.value.reason is reason


async def test_info_is_the_services_own() -> None:
    """A mapping is handed on; anything else declares nothing."""
    assert await SidecarReranker(URL, client=Wire(always(json={"deadline_s": 25})).client()).info(1.0) == {"deadline_s": 25}
    assert await SidecarReranker(URL, client=Wire(always(json=[1])).client()).info(1.0) is None
