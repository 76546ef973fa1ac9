"""What traces, metrics and logs say of a search, and that no text of a query or a passage is ever in them."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from structlog.testing import capture_logs

from knowledge import telemetry as names
from knowledge.adapters.embedding_http import HttpEmbedder
from knowledge.adapters.rerankers.sidecar import SidecarReranker
from knowledge.errors import FallbackReason
from knowledge.models import Leg
from knowledge.rerank import PROBE_QUERY
from servicekit.telemetry import Telemetry
from services.knowledge.tests.fakes import (
    DIMENSION,
    FINGERPRINT,
    FakeBackend,
    FakeClock,
    FakeEmbedder,
    FakeReranker,
    embedding_of,
    failing,
    record,
    reranking,
)
from services.knowledge.tests.serving import CORPUS, Served, bearer, points, served
from services.knowledge.tests.wires import Wire

MARKER = "Zwiebelkuchen"
SECOND = "Rhabarbersaft"


def server_span(gateway: Served, path: str = "/search") -> ReadableSpan:
    """The one SERVER span of the route."""
    [span] = [one for one in gateway.spans.get_finished_spans() if one.kind is SpanKind.SERVER and path in one.name]
    return span


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    """The attributes of a span."""
    return dict(span.attributes or {})


class Services:
    """An embedding-service and a reranker-service behind scripted wires, with the product's own clients in front."""

    def __init__(self) -> None:
        self.rerank: Any = lambda documents: {
            "status": "complete",
            "results": [{"index": index, "score": 0.5} for index in range(len(documents))],
            "model": "m",
            "score_kind": "probability",
        }
        self.rerank_status = 200
        self.embed_echo = False

    def embedding(self, request: httpx.Request) -> httpx.Response:
        """Vectors, or the texts themselves where the service is out of order."""
        if request.url.path == "/info":
            return httpx.Response(200, json={"fingerprint": FINGERPRINT, "dimension": DIMENSION})
        texts = json.loads(request.content)["texts"]
        vectors = [[text] for text in texts] if self.embed_echo else [embedding_of(text) for text in texts]
        return httpx.Response(200, json={"vectors": vectors, "model": "e5", "fingerprint": FINGERPRINT})

    def reranking(self, request: httpx.Request) -> httpx.Response:
        """The scripted answer; the start-up probe is answered well."""
        if request.url.path == "/info":
            return httpx.Response(200, json={})
        sent = json.loads(request.content)
        if sent["query"] == PROBE_QUERY:
            return httpx.Response(200, json={"results": [{"index": 0, "score": 1}], "model": "m", "score_kind": "logit"})
        return httpx.Response(self.rerank_status, json=self.rerank(sent["documents"]))

    def adapters(self) -> dict[str, Any]:
        """The two clients, for `served`."""
        embedding, reranking_wire = Wire(self.embedding), Wire(self.reranking)

        def new_embedder(telemetry: Telemetry) -> HttpEmbedder:
            return HttpEmbedder("http://embedding", tracer=telemetry.tracer("t"), client=embedding.client())

        def new_reranker(telemetry: Telemetry) -> SidecarReranker:
            return SidecarReranker("http://reranker", client=reranking_wire.client())

        return {"new_embedder": new_embedder, "new_reranker": new_reranker}


async def test_a_reranked_search_says_so_everywhere() -> None:
    """`reranker_fallback` false and no reason on the span; one search counted as applied; durations and shares recorded."""
    async with served(FakeBackend(CORPUS)) as gateway:
        await gateway.search()
        found = attributes(server_span(gateway))
        assert found[names.RERANKER_FALLBACK] is False
        assert names.FALLBACK_REASON not in found
        assert (found[names.RERANKER_OUTCOME], found[names.CANDIDATE_COUNT], found[names.DEGRADED]) == ("applied", 15, ())
        assert [(labels, point.value) for labels, point in points(gateway.metrics, names.SEARCHES)] == [
            ({names.RERANKER_OUTCOME: "applied"}, 1)
        ]
        [(_, share)] = points(gateway.metrics, names.SCORED_SHARE)
        assert (share.count, share.sum) == (1, 1.0)
        assert points(gateway.metrics, names.FALLBACKS) == []
        stages = {labels[names.STAGE] for labels, _ in points(gateway.metrics, names.STAGE_DURATION)}
        assert stages == {"embed", "retrieve", "rerank"}


@pytest.mark.parametrize("reason", [reason for reason in FallbackReason if reason not in ("too_late", "circuit_open")])
async def test_a_fallback_carries_its_reason_in_span_metric_and_log(reason: FallbackReason) -> None:
    """The same word in all of them; the counter is by reason and provider."""
    reranker = FakeReranker(failing(reason, 500))
    with capture_logs() as logs:
        async with served(FakeBackend(CORPUS), reranker=reranker) as gateway:
            await gateway.search()
            span = server_span(gateway)
            assert attributes(span)[names.RERANKER_FALLBACK] is True
            assert attributes(span)[names.FALLBACK_REASON] == reason.value
            [event] = span.events
            assert (event.name, dict(event.attributes or {})) == (names.FALLBACK_EVENT, {names.FALLBACK_REASON: reason.value})
            [(labels, point)] = points(gateway.metrics, names.FALLBACKS)
            assert (labels, point.value) == ({names.FALLBACK_REASON: reason.value, names.RERANKER_PROVIDER: "fake"}, 1)
    [line] = [line for line in logs if line["event"] == names.FALLBACK_EVENT]
    assert (line["reason"], line["log_level"]) == (reason.value, "warning")


async def test_a_partial_answer_has_its_own_counter_and_share() -> None:
    """It is no fallback, and never silent."""
    reranker = FakeReranker(lambda *_: reranking({0: 0.5, 1: 0.4, 2: 0.3}, [(3, "deadline")]))
    async with served(FakeBackend(CORPUS), reranker=reranker) as gateway:
        await gateway.search()
        found = attributes(server_span(gateway))
        assert (found[names.RERANKER_FALLBACK], found[names.PARTIAL_REASON]) == (False, "deadline")
        [(labels, point)] = points(gateway.metrics, names.PARTIALS)
        assert (labels, point.value) == ({names.PARTIAL_REASON: "deadline", names.RERANKER_PROVIDER: "fake"}, 1)
        [(_, share)] = points(gateway.metrics, names.SCORED_SHARE)
        assert share.sum == pytest.approx(3 / 15)
        assert points(gateway.metrics, names.FALLBACKS) == []


async def test_how_much_reranking_changes_is_counted() -> None:
    """The places among the first five that hold another passage: two after a swap, none where it agrees, nothing on a fallback."""
    swap: Any = lambda _, documents: reranking([0.1, *(1 - place / 100 for place in range(1, len(documents)))])  # noqa: E731
    agree: Any = lambda _, documents: reranking([1 - place / 100 for place in range(len(documents))])  # noqa: E731
    first_two: Any = lambda *_: reranking({0: 0.1, 1: 0.9}, [(2, "deadline")])  # noqa: E731
    for script, fields, expected in (
        (swap, {}, [(1, 5)]),
        (first_two, {}, [(1, 2)]),
        (first_two, {"top_k": 1}, [(1, 1)]),
        (agree, {}, [(1, 0)]),
        (agree, {"scopes": [{"name": "a"}, {"name": "b"}, {"name": "none", "filters": {"language": "xx"}}]}, [(2, 0)]),
        (failing(FallbackReason.TRANSPORT), {}, []),
        (agree, {"rerank": False}, []),
    ):
        async with served(FakeBackend(CORPUS), reranker=FakeReranker(script)) as gateway:
            await gateway.search(fields)
            assert [(point.count, point.sum) for _, point in points(gateway.metrics, names.RERANK_MOVED)] == expected
            page = (await gateway.http.get("/metrics")).text
            assert ("knowledge_rerank_moved_bucket" in page) is bool(expected)


@pytest.mark.parametrize("seconds", [1, 30])
async def test_the_time_that_reranking_began_with_is_on_the_server_span(seconds: int) -> None:
    """Also where that was too little to ask; not where nothing was to be reranked."""
    async with served(FakeBackend(CORPUS), clock=FakeClock()) as gateway:
        await gateway.search(deadline_ms=seconds * 1000)
        assert attributes(server_span(gateway))[names.RERANKER_TIME_LEFT_S] == seconds
        gateway.spans.clear()
        await gateway.search(rerank=False)
        assert names.RERANKER_TIME_LEFT_S not in attributes(server_span(gateway))


async def test_calls_to_models_are_timed_by_operation_and_error() -> None:
    """Embeddings and reranking, each with its provider; a success has no error."""

    def operations(gateway: Served) -> set[tuple[str, str, str | None]]:
        found = [labels for labels, _ in points(gateway.metrics, names.CLIENT_OPERATION_DURATION)]
        return {(one[names.GEN_AI_OPERATION], one[names.GEN_AI_PROVIDER], one.get(names.ERROR_TYPE)) for one in found}

    async with served(FakeBackend(CORPUS)) as gateway:
        await gateway.search()
        assert operations(gateway) == {("embeddings", "knowledge-embedding", None), ("rerank", "fake", None)}
    embedder = FakeEmbedder()
    embedder.down = True
    async with served(FakeBackend(CORPUS), embedder=embedder, reranker=FakeReranker(failing(FallbackReason.OVERLOADED))) as gateway:
        await gateway.search()
        failed = {("embeddings", "knowledge-embedding", "transport"), ("rerank", "fake", "overloaded")}
        assert operations(gateway) == failed | {("rerank", "fake", None)}  # the probe at the start was answered


async def test_documents_that_come_over_http_are_counted_by_what_became_of_them() -> None:
    """Each of the closed set: what is refused before it is looked at too."""
    good = {"id": "a", "content": "Wasser.", "allowed_roles": ["reader"]}
    half = {"id": "b", "chunks": [{"id": "1", "content": "Wasser."}, {"id": "1", "content": "Licht."}]}
    async with served() as gateway:
        headers = bearer(roles=("knowledge-writer",))
        items = (await gateway.http.post("/documents", json=[good, half, {"id": ""}], headers=headers)).json()["items"]
        assert [one["status"] for one in items] == ["indexed", "partial", "failed"]
        await gateway.http.post("/documents", json=[good], headers=headers)
        counted = {labels[names.INGEST_OUTCOME]: point.value for labels, point in points(gateway.metrics, names.INGEST_ITEMS)}
        assert counted == {"indexed": 1, "partial": 1, "failed": 1, "unchanged": 1}
        assert "knowledge_ingest_items_total" in (await gateway.http.get("/metrics")).text


async def test_a_skipped_reranking_is_no_fallback() -> None:
    """The attribute is there and false."""
    async with served(FakeBackend(CORPUS), reranker=False) as gateway:
        await gateway.search()
        assert attributes(server_span(gateway))[names.RERANKER_FALLBACK] is False


FAILED_SEARCHES = ("unavailable", "refused provider", "overloaded", "invalid limit", "invalid field", "no token", "bug")


@pytest.mark.parametrize("kind", FAILED_SEARCHES)
async def test_reranker_fallback_is_on_the_span_of_a_failed_search_too(kind: str) -> None:
    """It is there always, as a boolean: a query over the attribute misses no search."""
    reranker = FakeReranker(failing(FallbackReason.MISCONFIGURED, 401))
    async with served(FakeBackend(CORPUS), reranker=reranker, reranker_permanent_errors="error") as gateway:
        body: dict[str, Any] = {"query": "wasser"}
        headers = bearer()
        if kind == "unavailable":
            gateway.backend.failed = set(Leg)
        if kind == "overloaded":
            gateway.app.state.gateway.searches_in_flight = 64
        if kind == "invalid limit":
            body["rerank_depth"] = 16
        if kind == "invalid field":
            body["top_k"] = 0
        if kind == "no token":
            headers = {}
        if kind == "bug":
            gateway.backend.asked = None  # type: ignore[assignment]
        response = await gateway.http.post("/search", json=body, headers=headers)
        assert response.status_code >= 400
        assert attributes(server_span(gateway)).get(names.RERANKER_FALLBACK) is False


async def test_a_search_whose_caller_went_away_is_counted_as_cancelled() -> None:
    """The outcome `cancelled` is one of the closed set: it is on the span and in the counter."""
    backend, leaving = FakeBackend(CORPUS), asyncio.Event()
    backend.hold = asyncio.Event()
    async with served(backend) as gateway:
        messages = [{"type": "http.request", "body": b'{"query": "wasser"}', "more_body": False}]

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop()
            await leaving.wait()
            return {"type": "http.disconnect"}

        async def send(_: Any) -> None:
            pass

        headers = [(b"authorization", bearer()["Authorization"].encode()), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/search", "query_string": b"", "headers": headers, "root_path": "",
                 "scheme": "http", "http_version": "1.1", "server": ("gateway", 80), "client": ("127.0.0.1", 1)}  # fmt: skip
        call = asyncio.create_task(gateway.app(scope, receive, send))  # type: ignore[arg-type]
        await backend.searching.wait()
        leaving.set()
        await call
        found = attributes(server_span(gateway))
        assert (found.get(names.RERANKER_FALLBACK), found.get(names.RERANKER_OUTCOME)) == (False, "cancelled")
        assert [labels for labels, _ in points(gateway.metrics, names.SEARCHES)] == [{names.RERANKER_OUTCOME: "cancelled"}]


async def test_the_spans_of_a_search_and_their_tree() -> None:
    """SERVER `POST /search` above CLIENT `embeddings e5` and `rerank ...`, in one trace, with their attributes."""
    services = Services()
    async with served(FakeBackend(CORPUS), **services.adapters()) as gateway:
        gateway.spans.clear()
        await gateway.search()
        spans = {span.name: span for span in gateway.spans.get_finished_spans()}
        server = spans["POST /search"]
        assert server.kind is SpanKind.SERVER
        for name in ("embeddings e5", "rerank sidecar"):
            assert spans[name].kind is SpanKind.CLIENT
            assert spans[name].parent is not None
            assert spans[name].parent.span_id == server.context.span_id
        rerank = attributes(spans["rerank sidecar"])
        assert (rerank[names.RERANKER_PROVIDER], rerank[names.RERANKER_CANDIDATE_COUNT], rerank[names.RERANKER_SCORED_COUNT]) == (
            "sidecar",
            15,
            15,
        )
        assert (rerank[names.GEN_AI_OPERATION], spans["rerank sidecar"].status.status_code) == ("rerank", StatusCode.UNSET)
        assert attributes(server)["http.response.status_code"] == 200


@pytest.mark.parametrize(("status", "reason"), [(500, "http_status"), (429, "overloaded"), (401, "misconfigured"), (422, "rejected")])
async def test_a_handled_fallback_leaves_the_server_span_unset_and_the_rerank_span_an_error(status: int, reason: str) -> None:
    """The search was served; the call was not."""
    services = Services()
    services.rerank_status = status
    async with served(FakeBackend(CORPUS), **services.adapters()) as gateway:
        gateway.spans.clear()
        response = await gateway.search()
        assert response.headers["x-reranker-fallback"] == reason
        spans = {span.name: span for span in gateway.spans.get_finished_spans()}
        assert spans["POST /search"].status.status_code is StatusCode.UNSET
        assert spans["rerank sidecar"].status.status_code is StatusCode.ERROR
        assert attributes(spans["rerank sidecar"])[names.ERROR_TYPE] == reason


async def test_garbage_that_only_the_check_finds_is_an_error_of_the_rerank_span_too() -> None:
    """An answer that decodes and does not hold is a failed call all the same."""
    services = Services()
    services.rerank = lambda _: {"results": [{"index": 99, "score": 0.5}], "model": "m", "score_kind": "logit"}
    async with served(FakeBackend(CORPUS), **services.adapters()) as gateway:
        gateway.spans.clear()
        assert (await gateway.search()).headers["x-reranker-fallback"] == "malformed_response"
        [span] = [span for span in gateway.spans.get_finished_spans() if span.name.startswith("rerank")]
        assert (span.status.status_code, attributes(span).get(names.ERROR_TYPE)) == (StatusCode.ERROR, "malformed_response")


async def test_a_client_timeout_is_an_error_of_the_rerank_span() -> None:
    """The wait ended from outside; the span still says why."""
    services = Services()

    async def never(_: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    def new_reranker(telemetry: Telemetry) -> SidecarReranker:
        def answer(request: httpx.Request) -> Any:
            probing = request.url.path == "/info" or json.loads(request.content)["query"] == PROBE_QUERY
            return services.reranking(request) if probing else never(request)

        return SidecarReranker("http://reranker", client=Wire(answer).client())

    async with served(FakeBackend(CORPUS), new_reranker=new_reranker) as gateway:
        gateway.spans.clear()
        assert (await gateway.search(deadline_ms=300)).headers["x-reranker-fallback"] == "client_timeout"
        spans = {span.name: span for span in gateway.spans.get_finished_spans()}
        assert spans["POST /search"].status.status_code is StatusCode.UNSET
        rerank = spans["rerank sidecar"]
        assert (rerank.status.status_code, attributes(rerank).get(names.ERROR_TYPE)) == (StatusCode.ERROR, "client_timeout")


async def test_a_dead_embedding_service_is_an_error_of_its_span_and_a_degraded_answer() -> None:
    """The server span stays Unset; the counter says what was missing."""

    def new_embedder(telemetry: Telemetry) -> HttpEmbedder:
        return HttpEmbedder("http://embedding", tracer=telemetry.tracer("t"), client=Wire(lambda _: httpx.Response(500)).client())

    async with served(FakeBackend(CORPUS), new_embedder=new_embedder) as gateway:
        await gateway.search()
        [span] = [span for span in gateway.spans.get_finished_spans() if span.name.startswith("embeddings")]
        assert (span.status.status_code, attributes(span)[names.ERROR_TYPE]) == (StatusCode.ERROR, "http_500")
        assert server_span(gateway).status.status_code is StatusCode.UNSET
        assert attributes(server_span(gateway))[names.DEGRADED] == ("vector",)
        assert [(labels, point.value) for labels, point in points(gateway.metrics, names.DEGRADED_ANSWERS)] == [
            ({names.DEGRADED: "vector"}, 1)
        ]


async def test_a_search_that_cannot_be_served_is_an_error_of_the_server_span() -> None:
    """503 is the server's fault."""
    async with served(FakeBackend(CORPUS)) as gateway:
        gateway.backend.down = True
        await gateway.search()
        assert server_span(gateway).status.status_code is StatusCode.ERROR


async def test_calls_and_characters_of_the_provider_are_counted() -> None:
    """What is sent is what it costs: one call, and the characters of all documents."""
    async with served(FakeBackend(CORPUS)) as gateway:
        before = {labels[names.RERANKER_PROVIDER]: point.value for labels, point in points(gateway.metrics, names.PROVIDER_CHARACTERS)}
        await gateway.search()
        [(_, calls)] = points(gateway.metrics, names.PROVIDER_CALLS)
        [(_, characters)] = points(gateway.metrics, names.PROVIDER_CHARACTERS)
        assert calls.value == 1 + gateway.reranker.probes
        assert characters.value - before.get("fake", 0) == sum(map(len, gateway.reranker.calls[0][1]))


async def test_the_gauge_of_a_misconfigured_provider() -> None:
    """1 while it refuses the configuration."""
    reranker = FakeReranker(failing(FallbackReason.MISCONFIGURED, 401))
    async with served(FakeBackend(CORPUS), reranker=reranker) as gateway:
        await gateway.search()
        assert [point.value for _, point in points(gateway.metrics, names.MISCONFIGURED)] == [1]
        assert "reranker_misconfigured" in (await gateway.http.get("/metrics")).text


async def test_the_trace_context_is_handed_on() -> None:
    """Both services are called inside the trace of the search."""
    services, wires = Services(), []

    def new_reranker(telemetry: Telemetry) -> SidecarReranker:
        wires.append(Wire(services.reranking))
        return SidecarReranker("http://reranker", client=wires[0].client())

    async with served(FakeBackend(CORPUS), new_reranker=new_reranker) as gateway:
        body = (await gateway.search()).json()
        assert wires[0].requests[-1].headers["traceparent"].split("-")[1] == body["trace_id"]


async def test_probes_make_no_spans() -> None:
    """/health, /ready and /metrics are asked every few seconds and say nothing new."""
    async with served(FakeBackend(CORPUS)) as gateway:
        gateway.spans.clear()
        for path in ("/health", "/ready", "/metrics"):
            await gateway.http.get(path)
        assert [span.name for span in gateway.spans.get_finished_spans()] == []


async def test_the_service_is_named() -> None:
    """`service.name` is the component's name."""
    async with served(FakeBackend(CORPUS)) as gateway:
        await gateway.search()
        assert server_span(gateway).resource.attributes["service.name"] == "knowledge-gateway"


def exported(gateway: Served) -> str:
    """Everything that spans and metrics say, as text."""
    spans = "\n".join(span.to_json() for span in gateway.spans.get_finished_spans())
    data = gateway.metrics.get_metrics_data()
    return spans + (data.to_json() if data else "")


ECHOES: dict[str, Any] = {
    "well": None,
    "echo as score": lambda documents: {"results": [{"index": 0, "score": documents[0]}], "model": "m", "score_kind": "logit"},
    "echo as index": lambda documents: {"results": [{"index": documents[0], "score": 1}], "model": "m", "score_kind": "logit"},
    "echo as score kind": lambda documents: {"results": [{"index": 0, "score": 1}], "model": "m", "score_kind": documents[0]},
    "echo as a reason": lambda documents: {
        "results": [{"index": 0, "score": 1}],
        "unscored": [{"index": 1, "reason": documents[1]}],
        "model": "m",
        "score_kind": "logit",
    },
    "echo as a list": lambda documents: documents,
    "echo as keys": lambda documents: dict.fromkeys(documents, 1),
}


@pytest.mark.parametrize("kind", ECHOES)
@pytest.mark.parametrize("embed_echo", [False, True])
async def test_no_text_is_in_spans_metrics_or_logs(kind: str, embed_echo: bool, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither of the query nor of a passage, nor the subject: not even when a service answers with what it was sent."""
    services = Services()
    services.embed_echo = embed_echo
    if ECHOES[kind]:
        services.rerank = ECHOES[kind]
    records = [
        record(str(number), f"{MARKER} {SECOND} {number}", document_id="d1", title=MARKER, metadata={"m": MARKER}) for number in range(3)
    ]
    with capture_logs() as logs:
        async with served(FakeBackend(records), **services.adapters()) as gateway:
            headers = bearer(subject=SECOND)
            for body in (
                {"query": MARKER, "sub_queries": [SECOND, MARKER], "explain": True},
                {"query": f"{MARKER} POL-55012", "scopes": [{"name": "a", "filters": {"category": [MARKER]}}, {"name": "b"}]},
                {"query": MARKER, "top_k": 0, "language": MARKER},
                {"query": MARKER, "filters": {MARKER.lower(): [MARKER]}},
            ):
                await gateway.http.post("/search", json=body, headers=headers)
            operator = bearer(subject=SECOND, roles=("reader", "knowledge-operator"))
            await gateway.http.post("/search/stream", json={"query": MARKER, "explain": True}, headers=operator)
            await gateway.http.get("/documents/d1", headers=headers)
            await gateway.http.post("/search", content=f'{{"{MARKER}', headers=headers)
            text = exported(gateway) + (await gateway.http.get("/metrics")).text
    everything = text + "\n" + json.dumps(logs, default=str) + "".join(capfd.readouterr())
    assert telling(everything) == []


def telling(text: str) -> list[str]:
    """The lines that hold one of the words that only queries and passages hold."""
    lines = [line.strip() for line in text.replace("\\n", "\n").splitlines()]
    return [line[:200] for line in lines if MARKER.casefold() in line.casefold() or SECOND.casefold() in line.casefold()]


async def test_the_query_string_of_a_simple_search_is_in_no_span() -> None:
    """`GET /search?q=` carries the query in its address: the address is not recorded."""
    with capture_logs() as logs:
        async with served(FakeBackend(CORPUS)) as gateway:
            await gateway.http.get("/search", params={"q": MARKER}, headers=bearer())
            text = exported(gateway)
    assert telling(text + json.dumps(logs, default=str)) == []


async def test_no_text_of_an_unexpected_error_is_in_spans_or_logs() -> None:
    """An exception that holds a passage in its message is recorded by its class alone."""

    class Broken(FakeBackend):
        async def msearch(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError(MARKER)

    with capture_logs() as logs:
        async with served(Broken(CORPUS)) as gateway:
            assert (await gateway.search()).status_code == 500
            text = exported(gateway)
    assert telling(text + json.dumps(logs, default=str)) == []


def test_every_name_is_a_constant_and_none_stands_twice() -> None:
    """Names of attributes and metrics are unique and lower-case with dots and underscores."""
    constants = {name: value for name, value in vars(names).items() if name.isupper() and isinstance(value, str) and name != "SERVICE"}
    assert len(set(constants.values())) == len(constants)
    assert all(value == value.lower() and " " not in value for value in constants.values())
