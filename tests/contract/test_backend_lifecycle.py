"""How an index comes to be, who may open it, and what is said where it does not fit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from opentelemetry.trace import NoOpTracer

from knowledge.adapters.opensearch import OpenSearchBackend
from knowledge.adapters.opensearch_mapping import PERMISSION_FIELDS
from knowledge.errors import BackendError, IndexMismatch
from knowledge.ports import Backend
from tests.contract.places import (
    DIMENSION,
    FINGERPRINT,
    TENANT,
    TIMEOUT_S,
    Asked,
    OpenSearchPlace,
    Place,
    identifier,
    lexical,
    record,
    seen_by,
    vector,
)


async def test_an_absent_index_is_empty_until_its_model_is_known(place: Place) -> None:
    """Searching works and finds nothing; writing says what is missing; then it is made, by the same or another process."""
    backend = place.connect()
    await backend.open(fingerprint=None, dimension=None)
    results = await backend.msearch([lexical("x"), vector("x"), identifier("x")], TIMEOUT_S)
    assert [(result.hits, result.failed) for result in results] == [((), False)] * 3
    assert await backend.document("d", seen_by("reader")) is None
    assert await backend.permissions(TENANT, "d") is None
    assert (await backend.stored_chunks(TENANT, ["d"]))["d"] == []
    assert await backend.stored_vectors(TENANT, ["e"]) == {}
    assert await backend.document_ids(TENANT, "tests") == set()
    assert await backend.delete_document(TENANT, "d") == 0
    assert await backend.ready()
    with pytest.raises(BackendError, match="embedding model"):
        await backend.write(TENANT, [record("a")], [])
    ingesting = place.connect()
    await ingesting.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    await ingesting.write(TENANT, [record("a", "wort")], [])
    await ingesting.aclose()
    assert await Asked(backend).ids(lexical("wort")) == ["a"]
    assert await backend.write(TENANT, [record("b", "wort")], []) == []
    assert await Asked(backend).ids(vector("wort")) == ["a", "b"]
    await backend.aclose()


async def test_opening_twice_changes_nothing(backend: Backend, asked: Asked) -> None:
    """With the same values, with none, and from another process."""
    await backend.write(TENANT, [record("a", "wort")], [])
    await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    await backend.open(fingerprint=None, dimension=None)
    assert await asked.ids(lexical("wort")) == ["a"]
    assert await backend.ready()


async def test_many_may_open_at_once(place: Place) -> None:
    """Exactly one index comes of it, and all of them use it."""
    backends = [place.connect() for _ in range(6)]
    await asyncio.gather(*(one.open(fingerprint=FINGERPRINT, dimension=DIMENSION) for one in backends))
    for index, one in enumerate(backends):
        await one.write(TENANT, [record(f"p{index}", "wort")], [])
    for one in backends:
        assert len(await Asked(one).ids(lexical("wort"))) == len(backends)
        assert await one.ready()
        await one.aclose()
    if isinstance(place, OpenSearchPlace):
        assert len(place.call("GET", f"_alias/{place.alias}")) == 1


@pytest.mark.parametrize(("fingerprint", "dimension"), [("sha256:other", DIMENSION), (FINGERPRINT, DIMENSION + 1)])
async def test_another_embedding_model_is_turned_away(place: Place, backend: Backend, fingerprint: str, dimension: int) -> None:
    """The sentence names what was built, what is wanted and two ways out; what was there stays usable."""
    await backend.write(TENANT, [record("a", "wort")], [])
    other = place.connect()
    with pytest.raises(IndexMismatch) as caught:
        await other.open(fingerprint=fingerprint, dimension=dimension)
    said = str(caught.value)
    assert FINGERPRINT in said
    assert fingerprint in said
    assert str(dimension) in said
    assert " or " in said
    await other.aclose()
    assert await Asked(backend).ids(lexical("wort")) == ["a"]


async def test_two_processes_see_each_other(place: Place, backend: Backend, asked: Asked) -> None:
    """What one writes and removes the other finds and misses, at once."""
    other = place.connect()
    await other.open(fingerprint=None, dimension=None)
    for round_ in range(3):
        await other.write(TENANT, [record("a", f"runde{round_}")], [])
        assert await asked.ids(lexical(f"runde{round_}")) == ["a"]
    await other.delete_document(TENANT, "doc-a")
    assert await asked.ids(vector("runde2")) == []
    await other.aclose()


async def test_an_index_outlives_its_backend(place: Place) -> None:
    """Closed and opened again, all is there."""
    for _ in range(2):
        backend = place.connect()
        await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
        await backend.write(TENANT, [record("a", "wort")], [])
        assert await Asked(backend).ids(lexical("wort")) == ["a"]
        await backend.aclose()


@pytest.fixture
def node_place(opensearch_url: str) -> Iterator[OpenSearchPlace]:
    """An alias on the node, for what only OpenSearch has."""
    made = OpenSearchPlace(opensearch_url)
    yield made
    made.remove()


@pytest.mark.opensearch
async def test_permissions_that_are_analysed_stop_the_start(node_place: OpenSearchPlace) -> None:
    """On such fields `role-1` and `role-2` would share a token."""
    text = {"properties": {"allowed_roles": {"type": "text"}, "allowed_subjects": {"type": "keyword"}, "tenant": {"type": "keyword"}}}
    node_place.call("PUT", f"{node_place.alias}-x", {"mappings": text, "aliases": {node_place.alias: {}}})
    await _refused(node_place, "allowed_roles as keyword")


@pytest.mark.opensearch
async def test_a_foreign_index_stops_the_start(node_place: OpenSearchPlace) -> None:
    """One without our `_meta`, an index in the alias's place, an alias on two indices, and an index that lost its alias."""
    keywords = {"properties": {name: {"type": "keyword"} for name in PERMISSION_FIELDS}}
    node_place.call("PUT", f"{node_place.alias}-x", {"mappings": keywords, "aliases": {node_place.alias: {}}})
    await _refused(node_place, "mapping unknown")
    node_place.call("PUT", f"{node_place.alias}-y", {"aliases": {node_place.alias: {}}})
    await _refused(node_place, "several indices")
    node_place.remove()
    node_place.call("PUT", node_place.alias)
    await _refused(node_place, "must be an alias")
    node_place.remove()
    backend = node_place.connect()
    await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    (name,) = node_place.call("GET", f"_alias/{node_place.alias}")
    node_place.call("DELETE", f"{name}/_alias/{node_place.alias}")
    assert not await backend.ready()
    (lost,) = await backend.msearch([lexical("x")], TIMEOUT_S)
    assert lost.failed
    for change in (backend.write(TENANT, [record("a")], []), backend.delete_document(TENANT, "d")):
        with pytest.raises(BackendError, match="no index"):
            await change
    await backend.aclose()
    await _refused(node_place, "Put the alias on it")


async def _refused(place: OpenSearchPlace, words: str) -> None:
    backend = place.connect()
    with pytest.raises(IndexMismatch, match=words):
        await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    await backend.aclose()


@pytest.mark.opensearch
async def test_the_index_says_what_it_was_made_for(node_place: OpenSearchPlace) -> None:
    """Name, engine, keyword fields and `_meta` are as operators and `reindex` expect them."""
    backend = node_place.connect()
    await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    await backend.aclose()
    ((name, index),) = node_place.call("GET", node_place.alias).items()
    assert name.startswith(f"{node_place.alias}-")
    assert index["settings"]["index"]["number_of_replicas"] == "0"
    mapping = index["mappings"]
    meta = mapping["_meta"]["knowledge_gateway"]
    assert (meta["fingerprint"], meta["dimension"]) == (FINGERPRINT, DIMENSION)
    assert mapping["dynamic"] == "strict"
    method = mapping["properties"]["vector"]["method"]
    assert (method["engine"], method["name"], method["space_type"]) == ("lucene", "hnsw", "cosinesimil")
    assert all(mapping["properties"][field] == {"type": "keyword"} for field in PERMISSION_FIELDS)


async def test_nothing_at_the_address_is_an_error_that_says_so() -> None:
    """Not ready, and every call a BackendError within its time."""
    backend = OpenSearchBackend("http://127.0.0.1:9", "kgtest-nowhere", tracer=NoOpTracer())
    assert not await backend.ready()
    with pytest.raises(BackendError, match="cannot be reached"):
        await backend.open(fingerprint=None, dimension=None)
    with pytest.raises(BackendError, match="cannot be reached"):
        await backend.msearch([lexical("x")], 1.0)
    await backend.aclose()
