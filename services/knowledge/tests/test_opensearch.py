"""What the OpenSearch backend makes of a cluster that is late, half there, busy or wrong: against a server that plays each part."""

import json
import logging
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.trace import NoOpTracer

from knowledge.adapters import opensearch_documents
from knowledge.adapters.opensearch import OpenSearchBackend
from knowledge.adapters.opensearch_mapping import index_body
from knowledge.errors import BackendError, IndexMismatch
from knowledge.models import LegQuery, LegResult
from services.knowledge.tests.played import GOOD, SHARDS, SOURCE, Played
from tests.contract.places import DIMENSION, FINGERPRINT, TENANT, identifier, lexical, record, vector

ALIAS = "kgtest-played"
SECRET = "geheimes wort"


@pytest.fixture
async def played() -> AsyncIterator[Played]:
    """The server, on a port of its own."""
    server = Played()
    app = web.Application(client_max_size=10_000_000)
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = runner.addresses[0]
    yield server
    await runner.cleanup()


@pytest.fixture
async def backend(played: Played) -> AsyncIterator[OpenSearchBackend]:
    """A backend of that server."""
    host, port = played.url[:2]
    made = OpenSearchBackend(f"http://{host}:{port}", ALIAS, tracer=NoOpTracer())
    yield made
    await made.aclose()


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """The client warns of each failed request; these are meant to fail."""
    caplog.set_level(logging.CRITICAL, logger="opensearch")


def mapped(**meta: object) -> dict[str, Any]:
    """The mapping of a fitting index as the cluster gives it."""
    mappings = index_body(ALIAS, FINGERPRINT, DIMENSION, 0)["mappings"]
    mappings["_meta"]["knowledge_gateway"] |= meta
    return {f"{ALIAS}-1": {"mappings": mappings}}


async def ask(backend: OpenSearchBackend, *queries: LegQuery, timeout_s: float = 5.0) -> list[LegResult]:
    """One search."""
    return await backend.msearch(queries or [lexical("wort")], timeout_s)


async def test_one_request_holds_all_legs_and_each_its_filter(played: Played, backend: OpenSearchBackend) -> None:
    """Times nest, depth is size, vectors and permissions stay behind, ties are ordered by id."""
    played.says({"responses": [GOOD] * 3})
    await ask(backend, lexical("wort"), vector("wort"), identifier("ph"), timeout_s=4.0)
    ((path, lines),) = played.asked
    assert path == f"/{ALIAS}/_msearch"
    headers, bodies = lines[::2], lines[1::2]
    assert len({header["preference"] for header in headers}) == 1
    assert TENANT not in headers[0]["preference"]
    for body in bodies:
        assert int(body["timeout"].removesuffix("ms")) < 4000 * 0.95
        assert body["size"] == 50
        assert not {"vector", "text", "allowed_roles", "allowed_subjects"} & set(body["_source"])
        assert json.dumps(body["query"]).count('"allowed_roles"') == 1
        assert json.dumps(body["query"]).count('"tenant"') == 1
    assert bodies[1]["query"]["knn"]["vector"]["k"] == 50
    assert "tenant" in json.dumps(bodies[1]["query"]["knn"]["vector"]["filter"])
    for body in (bodies[0], bodies[2]):
        assert body["sort"][-1] == {"id": "asc"}
        assert body["track_scores"]


async def test_each_item_is_checked(played: Played, backend: OpenSearchBackend) -> None:
    """An error kills its leg; a time-out and a failed shard keep what there is; no shard is a failure."""
    error = {"error": {"type": "search_phase_execution_exception", "reason": SECRET}, "status": 400}
    late = {**GOOD, "timed_out": True}
    half = {**GOOD, "_shards": {**SHARDS, "successful": 1, "failed": 1}}
    none = {**GOOD, "_shards": {**SHARDS, "successful": 0, "failed": 2}, "hits": {"hits": []}}
    played.says({"responses": [error, late, half, none, GOOD]})
    found = await ask(backend, *[vector("wort")] * 5)
    assert [(len(one.hits), one.failed, one.timed_out, one.shards_failed) for one in found] == [
        (0, True, False, False),
        (1, False, True, False),
        (1, False, False, True),
        (0, True, False, True),
        (1, False, False, False),
    ]
    assert found[4].hits[0].score == 0.5


async def test_a_broken_connection_is_tried_once_more(played: Played, backend: OpenSearchBackend) -> None:
    """Once, and only once."""
    played.hangs_up()
    played.says({"responses": [GOOD]})
    assert len((await ask(backend))[0].hits) == 1
    assert len(played.asked) == 2
    played.asked.clear()
    played.answers.clear()
    played.hangs_up(5)
    with pytest.raises(BackendError, match="cannot be reached"):
        await ask(backend)
    assert len(played.asked) == 2


async def test_a_late_answer_is_not_asked_for_again(played: Played, backend: OpenSearchBackend) -> None:
    """The error comes before the stage's time is over."""
    played.sleeps(30)
    started = time.monotonic()
    with pytest.raises(BackendError, match="late"):
        await ask(backend, timeout_s=0.3)
    assert time.monotonic() - started < 2.3
    assert len(played.asked) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 429, 500, 502, 503])
async def test_a_refused_search_is_an_error_without_its_text(played: Played, backend: OpenSearchBackend, status: int) -> None:
    """Not one status is retried; the reason that the cluster gives may quote the request, ours does not."""
    played.says({"error": {"type": "some_exception", "reason": SECRET, "root_cause": [{"reason": SECRET}]}}, status=status)
    with pytest.raises(BackendError) as caught:
        await ask(backend)
    assert re.fullmatch(rf"OpenSearch refused: {status} some_exception(: it does not know who calls.*)?\.", str(caught.value))
    assert caught.value.__suppress_context__
    assert len(played.asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        {},
        [],
        None,
        {"responses": None},
        {"responses": []},
        {"responses": [GOOD, GOOD]},
        {"responses": [{}]},
        {"responses": [{**GOOD, "hits": {"hits": [{"_score": None, "_source": SOURCE}]}}]},
        {"responses": [{**GOOD, "hits": {"hits": [{"_score": 1.0, "_source": {}}]}}]},
    ],
)
async def test_an_answer_that_is_none_is_an_error(played: Played, backend: OpenSearchBackend, answer: object) -> None:
    """Whatever a proxy in between makes up."""
    played.says(answer)
    with pytest.raises(BackendError):
        await ask(backend)


async def test_a_page_of_a_proxy_is_an_error(played: Played, backend: OpenSearchBackend) -> None:
    """HTML with status 200, and with an error status, of which nothing is repeated."""

    async def page(_: web.Request) -> web.StreamResponse:
        return web.Response(text=f"<html>{SECRET}</html>", content_type="text/html", status=502)

    played.answers.append(page)
    with pytest.raises(BackendError, match="502 unnamed error") as caught:
        await ask(backend)
    assert SECRET not in str(caught.value)


async def test_what_finds_nothing_is_not_asked(played: Played, backend: OpenSearchBackend) -> None:
    """Blank words, no identifier, a vector without direction, a tenant that cannot be."""
    nothing = [lexical(" "), identifier(), LegQuery(vector("x").leg, vector("x").visibility, 10, vector=(0.0, 0.0))]
    assert await backend.msearch(nothing, 1.0) == [LegResult()] * 3
    assert played.asked == []


def item(status: int, kind: str | None = None) -> dict[str, Any]:
    """The outcome of one item of a bulk request."""
    return {"index": {"status": status, **({"error": {"type": kind, "reason": SECRET}} if kind else {})}}


async def test_busy_items_are_sent_again_and_refused_ones_named(
    played: Played, backend: OpenSearchBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what was turned away goes out again; reasons hold a status and a word."""
    busy = item(429, "opensearch_rejected_execution_exception")
    played.mapping = mapped()
    played.says({"errors": True, "items": [item(201), busy, item(400, "mapper_parsing_exception"), busy]})
    played.says({"errors": True, "items": [item(201), busy]}, {"errors": False, "items": [item(200)]}, {})
    failures = await backend.write(TENANT, [record(name, SECRET) for name in "abcd"], [])
    assert [(one.id, one.reason) for one in failures] == [("c", "refused: 400 mapper_parsing_exception")]
    bulks = [lines for path, lines in played.asked if "_bulk" in path]
    assert [[line["id"] for line in lines if "id" in line] for lines in bulks] == [["a", "b", "c", "d"], ["b", "d"], ["d"]]
    assert all(path.startswith(f"/{ALIAS}-1/_bulk") for path, _ in played.asked if "_bulk" in path)
    assert [path.split("?")[0] for path, _ in played.asked[-2:]] == [f"/{ALIAS}-1/_refresh", f"/{ALIAS}/_mapping"]


async def test_a_cluster_that_stays_busy_is_a_failure_of_each_item(
    played: Played, backend: OpenSearchBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a few tries, and without an end to the rest."""
    monkeypatch.setattr(opensearch_documents, "ATTEMPTS", 3)
    played.mapping = mapped()
    played.says({"errors": True, "items": [item(429, "rejected")]})
    (failure,) = await backend.write(TENANT, [record("a")], [])
    assert failure.reason == "refused: 429 too busy"
    assert len([path for path, _ in played.asked if "_bulk" in path]) == 3


async def test_a_refused_bulk_request_is_an_error(played: Played, backend: OpenSearchBackend) -> None:
    """Nothing was acknowledged."""
    played.mapping = mapped()
    played.says({"error": {"type": "cluster_block_exception", "reason": SECRET}}, status=403)
    with pytest.raises(BackendError, match="403 cluster_block_exception"):
        await backend.write(TENANT, [record("a", SECRET)], [])


async def test_a_removal_that_left_something_goes_on(played: Played, backend: OpenSearchBackend) -> None:
    """A chunk that changed meanwhile is removed in the next round; a failure is an error."""
    played.mapping = mapped()
    round_ = {"deleted": 3, "version_conflicts": 1, "failures": [], "timed_out": False}
    played.says({}, round_, {}, {**round_, "deleted": 1, "version_conflicts": 0})
    assert await backend.delete_document(TENANT, "d") == 4
    played.answers.clear()
    played.says({}, {**round_, "failures": [{"cause": {"reason": SECRET}}]})
    with pytest.raises(BackendError, match="did not remove every chunk"):
        await backend.delete_document(TENANT, "d")


async def test_a_writer_never_decides_on_half_an_answer(played: Played, backend: OpenSearchBackend) -> None:
    """With a shard missing, chunks would look absent and documents vanished."""
    played.mapping = mapped()
    played.says({**GOOD, "_shards": {**SHARDS, "failed": 1}})
    for call in (backend.stored_chunks(TENANT, ["d"]), backend.permissions(TENANT, "d"), backend.document_ids(TENANT, "s")):
        with pytest.raises(BackendError, match="all of the index"):
            await call


async def test_ready_is_bounded_and_raises_nothing(played: Played, backend: OpenSearchBackend) -> None:
    """Late, refused, gone or not fitting is not ready."""
    played.says(mapped())
    assert await backend.ready()
    await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    assert await backend.ready()
    for body, status in (
        (mapped(fingerprint="other"), 200),
        ({}, 200),
        ([], 200),
        ({"x": 1}, 200),
        ({}, 503),
        ({"error": {"type": "index_not_found_exception"}}, 404),
    ):
        played.answers.clear()
        played.says(body, status=status)
        assert not await backend.ready()
    played.answers.clear()
    played.sleeps(30)
    started = time.monotonic()
    assert not await backend.ready()
    assert time.monotonic() - started < 4


async def test_another_replica_may_be_quicker(played: Played, backend: OpenSearchBackend) -> None:
    """An index that appears between the look and the creation is taken as it is; any other refusal is an error."""
    absent = Played.json({"error": {"type": "index_not_found_exception"}, "status": 404}, 404)
    played.answers.append(absent)
    played.says({"error": {"type": "resource_already_exists_exception"}}, status=400)
    played.says(mapped())
    await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    played.answers.clear()
    played.answers.append(absent)
    played.says({"error": {"type": "illegal_argument_exception", "reason": SECRET}}, status=400)
    with pytest.raises(BackendError, match="400 illegal_argument_exception"):
        await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)


async def test_credentials_go_with_every_request(played: Played) -> None:
    """Basic authentication as configured."""
    seen: list[str | None] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get("authorization"))
        return web.json_response(mapped())

    played.answers.append(answer)
    host, port = played.url[:2]
    backend = OpenSearchBackend(f"http://{host}:{port}", ALIAS, tracer=NoOpTracer(), username="ada", password="p:w")
    await backend.open(fingerprint=None, dimension=None)
    await backend.aclose()
    assert seen == ["Basic YWRhOnA6dw=="]


async def test_a_mapping_of_another_release_stops_the_start(played: Played, backend: OpenSearchBackend) -> None:
    """Both hashes and two ways out are named."""
    played.says(mapped(mapping_hash="0ld"))
    with pytest.raises(IndexMismatch, match=r"mapping 0ld, this release needs [0-9a-f]{16}\. .* or start the release"):
        await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)


@pytest.mark.parametrize("status", [400, 403, 404, 405])
async def test_a_template_that_may_not_be_put_is_done_without(played: Played, backend: OpenSearchBackend, status: int) -> None:
    """The index is there and fits: the gateway serves, with a line in the log that quotes nothing."""
    played.mapping = mapped()
    played.says({"error": {"type": "security_exception", "reason": SECRET}}, status=status)
    await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    assert any("_index_template" in path for path, _ in played.asked)
    assert await backend.ready()


async def test_a_cluster_that_fails_at_the_template_is_not_open(played: Played, backend: OpenSearchBackend) -> None:
    """A failure is no refusal: it is tried again later."""
    played.mapping = mapped()
    played.says({"error": {"type": "some_exception"}}, status=503)
    with pytest.raises(BackendError, match="503"):
        await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
