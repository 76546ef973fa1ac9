"""An index is built beside, compared and swapped while searches and writes go on; what was deleted or revoked never comes back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest
from opentelemetry.trace import NoOpTracer

from knowledge.adapters import opensearch_reindexing
from knowledge.adapters.analysis import compound_words
from knowledge.adapters.opensearch import OpenSearchBackend
from knowledge.adapters.opensearch_client import connect
from knowledge.adapters.opensearch_reindexing import OpenSearchReindexing
from knowledge.errors import BackendError, EmbeddingError, IndexMismatch
from knowledge.ingest.identity import embed_hash
from knowledge.ingest.reindex import Synchronisation, compare
from knowledge.ingest.vectors import Embedding
from knowledge.lexicon import Lexicon
from knowledge.models import Embeddings, Leg, LegQuery, Record
from knowledge.ports import Backend, IndexPair
from tests.contract.places import DIMENSION, FINGERPRINT, READER, TENANT, TIMEOUT_S, Asked, OpenSearchPlace, embed, lexical, record, vector

pytestmark = pytest.mark.opensearch

OTHER = "sha256:other"
OTHER_DIMENSION = 8


def other_embed(text: str) -> tuple[float, ...]:
    """Another model's vector: shorter, and of another space."""
    return tuple(reversed(embed(text)[:OTHER_DIMENSION]))


class OtherEmbedder:
    """The embedding-service of the other model; counts its texts."""

    def __init__(self) -> None:
        self.texts = 0
        self.broken = False

    async def embed(self, texts: Sequence[str], kind: Literal["query", "passage"], timeout_s: float) -> Embeddings:
        """One vector a text."""
        if self.broken:
            raise EmbeddingError("transport")
        self.texts += len(texts)
        return Embeddings(tuple(map(other_embed, texts)), "other", OTHER)

    async def info(self, timeout_s: float) -> dict[str, Any]:
        """As the real one."""
        return {"fingerprint": OTHER, "dimension": OTHER_DIMENSION}

    async def aclose(self) -> None:
        """Nothing is open."""


class NoEmbedder(OtherEmbedder):
    """Whoever asks it fails the test: nothing may be embedded again while the model stays."""

    async def embed(self, texts: Sequence[str], kind: Literal["query", "passage"], timeout_s: float) -> Embeddings:
        """Never."""
        raise AssertionError(f"{len(texts)} texts embedded again")


@pytest.fixture
def place(opensearch_url: str) -> Iterator[OpenSearchPlace]:
    """An alias on the node."""
    made = OpenSearchPlace(opensearch_url)
    yield made
    made.remove()


@pytest.fixture
async def reindexing(place: OpenSearchPlace) -> AsyncIterator[OpenSearchReindexing]:
    """What the command uses."""
    made = OpenSearchReindexing(connect(place.url, username=None, password=None, ca_file=None, pool_size=4), place.alias)
    yield made
    await made.aclose()


async def synchronise(pair: IndexPair, embedder: OtherEmbedder) -> Synchronisation:
    """One run of the work between the indices."""
    run = Synchronisation(pair, Embedding(embedder, fingerprint=pair.target.fingerprint, timeout_s=5))
    await run.run()
    return run


def behind(place: OpenSearchPlace) -> str:
    """The physical index that is searched."""
    (name,) = place.call("GET", f"_alias/{place.alias}")
    return str(name)


def stored(place: OpenSearchPlace, index: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Everything in an index past the product: record hash and roles by chunk id."""
    place.call("POST", f"{index}/_refresh")
    hits = place.call("POST", f"{index}/_search", {"size": 10_000})["hits"]["hits"]
    return {hit["_source"]["id"]: (hit["_source"]["record_hash"], tuple(hit["_source"]["allowed_roles"])) for hit in hits}


def passages(number: int, **changes: Any) -> list[Record]:
    """So many, each with a word of its own."""
    return [record(f"p{index:04}", f"wort w{index:04}", **changes) for index in range(number)]


async def test_a_reindex_copies_everything_once_and_keeps_the_old(
    place: OpenSearchPlace, backend: Backend, reindexing: OpenSearchReindexing
) -> None:
    """Nothing is embedded again; a running gateway follows; both indices are equal afterwards."""
    await backend.write(TENANT, passages(450), [])
    before = behind(place)
    pair = await reindexing.begin(FINGERPRINT, DIMENSION)
    run = await synchronise(pair, NoEmbedder())
    assert (run.progress.brought, run.progress.removed, run.progress.embedded) == (450, 0, 0)
    comparison = await compare(pair)
    assert (comparison.source_chunks, comparison.target_chunks, comparison.worse) == (450, 450, [])
    assert comparison.found[Leg.VECTOR] == (comparison.sampled, comparison.sampled)
    assert behind(place) == before
    await pair.swap()
    assert behind(place) == pair.target.name != before
    assert stored(place, before) == stored(place, pair.target.name)
    assert await backend.ready()
    assert await Asked(backend).ids(vector("wort w0007", size=1)) == ["p0007"]
    with pytest.raises(BackendError, match="knowledge retire"):
        await reindexing.begin(FINGERPRINT, DIMENSION)
    assert await reindexing.retire() == before
    assert await reindexing.retire() is None
    assert await Asked(backend).ids(lexical("w0007")) == ["p0007"]


async def test_what_is_written_meanwhile_is_in_both(place: OpenSearchPlace, backend: Backend, reindexing: OpenSearchReindexing) -> None:
    """A change, a removal, a revocation and a new passage, before the copy comes to them and after."""
    await backend.write(TENANT, passages(20), [])
    pair = await reindexing.begin(FINGERPRINT, DIMENSION)
    await backend.write(TENANT, [record("p0001", "neu", record_hash="changed"), record("new", "neu")], ["p0002"])
    await backend.delete_document(TENANT, "doc-p0003")
    await backend.write(TENANT, [record("p0004", "geheim", allowed_roles=("other",), record_hash="revoked")], [])
    await synchronise(pair, NoEmbedder())
    await backend.delete_document(TENANT, "doc-p0005")
    await backend.write(TENANT, [record("p0006", "geheim", allowed_roles=("other",), record_hash="revoked")], ["p0007"])
    await pair.swap()
    await backend.delete_document(TENANT, "doc-p0008")
    found = stored(place, pair.target.name)
    assert found == stored(place, pair.source.name)
    assert set(found).isdisjoint({"p0002", "p0003", "p0005", "p0007", "p0008"})
    assert {name for name, (_, roles) in found.items() if roles == ("other",)} == {"p0004", "p0006"}
    assert "new" in found
    assert await backend.ready()
    assert await Asked(backend).ids(lexical("geheim")) == []


async def test_what_only_one_index_got_is_repaired(place: OpenSearchPlace, backend: Backend, reindexing: OpenSearchReindexing) -> None:
    """As a writer leaves it that was killed between the two: the next round brings over what is newer and removes what is gone."""
    await backend.write(TENANT, passages(6), [])
    pair = await reindexing.begin(FINGERPRINT, DIMENSION)
    await synchronise(pair, NoEmbedder())
    ids = {hit["_source"]["id"]: hit["_id"] for hit in place.call("POST", f"{pair.source.name}/_search", {"size": 10})["hits"]["hits"]}
    place.call("POST", f"{pair.source.name}/_update/{ids['p0000']}?refresh=true", {"doc": {"record_hash": "n", "allowed_roles": []}})
    place.call("DELETE", f"{pair.source.name}/_doc/{ids['p0001']}?refresh=true")
    place.call("DELETE", f"{pair.target.name}/_doc/{ids['p0002']}?refresh=true")
    chunks = {
        one.id: one.record_hash
        for name in ("doc-p0000", "doc-p0001", "doc-p0003")
        for one in (await backend.stored_chunks(TENANT, [name]))[name]
    }
    assert chunks == {"p0000": "", "p0001": "", "p0003": "record-p0003"}
    run = await synchronise(pair, NoEmbedder())
    assert (run.progress.brought, run.progress.removed) == (2, 1)
    assert stored(place, pair.target.name) == stored(place, pair.source.name)


async def test_another_model_never_mixes(place: OpenSearchPlace, backend: Backend, reindexing: OpenSearchReindexing) -> None:
    """The vectors of a search choose its index, before and after the swap; vectors of neither fail their leg and nothing else."""
    await backend.write(TENANT, passages(30), [])
    embedder = OtherEmbedder()
    pair = await reindexing.begin(OTHER, OTHER_DIMENSION)
    await backend.write(TENANT, [record("late", "spät dran")], [])
    run = await synchronise(pair, embedder)
    assert (run.progress.embedded, embedder.texts) == (31, 31)
    new = place.connect()
    with pytest.raises(IndexMismatch):
        await new.open(fingerprint=OTHER, dimension=OTHER_DIMENSION)
    await pair.swap()
    await new.open(fingerprint=OTHER, dimension=OTHER_DIMENSION)
    assert await backend.ready()
    old_query = replace(vector("spät dran", size=1), fingerprint=FINGERPRINT)
    new_query = LegQuery(Leg.VECTOR, READER, 1, vector=other_embed("spät dran"), fingerprint=OTHER)
    for gateway in (backend, new):
        assert await gateway.ready()
        assert await Asked(gateway).ids(old_query) == ["late"]
        assert await Asked(gateway).ids(new_query) == ["late"]
    strange = replace(old_query, fingerprint="sha256:third")
    words, lost = await new.msearch([lexical("wort"), strange], TIMEOUT_S)
    assert (len(words.hits), words.failed, lost.failed) == (30, False, True)
    await new.aclose()


async def test_writers_of_both_models_reach_both_indices(
    place: OpenSearchPlace, backend: Backend, reindexing: OpenSearchReindexing
) -> None:
    """Words and permissions at once; the vector of the other model by the next synchronisation, so that a rollback is whole."""
    await backend.write(TENANT, passages(3), [])
    embedder = OtherEmbedder()
    pair = await reindexing.begin(OTHER, OTHER_DIMENSION)
    await synchronise(pair, embedder)
    await pair.swap()
    new = place.connect()
    await new.open(fingerprint=OTHER, dimension=OTHER_DIMENSION)
    later = record("later", "danach", vector=other_embed("danach"), embed_hash=embed_hash(OTHER, "danach"))
    assert await new.write(TENANT, [later], []) == []
    await backend.ready()
    assert await Asked(backend).ids(lexical("danach")) == ["later"]
    (chunk,) = (await backend.stored_chunks(TENANT, ["doc-later"]))["doc-later"]
    assert chunk.embed_hash == ""
    back = await reindexing.previous()
    assert (back.target.name, back.target.fingerprint) == (pair.source.name, FINGERPRINT)

    class FirstEmbedder(OtherEmbedder):
        async def embed(self, texts: Sequence[str], kind: Literal["query", "passage"], timeout_s: float) -> Embeddings:
            self.texts += len(texts)
            return Embeddings(tuple(map(embed, texts)), "toy", FINGERPRINT)

    first = FirstEmbedder()
    await synchronise(back, first)
    assert first.texts == 1
    await back.swap()
    assert behind(place) == pair.source.name
    assert await backend.ready()
    assert await Asked(backend).ids(vector("danach", size=1)) == ["later"]
    await new.aclose()


async def test_it_goes_on_where_it_was_broken_off(place: OpenSearchPlace, backend: Backend, reindexing: OpenSearchReindexing) -> None:
    """A failed embedding ends the run and swaps nothing; the next one embeds only what is missing; another model is turned away."""
    await backend.write(TENANT, passages(30), [])
    embedder = OtherEmbedder()
    embedder.broken = True
    pair = await reindexing.begin(OTHER, OTHER_DIMENSION)
    with pytest.raises(EmbeddingError):
        await synchronise(pair, embedder)
    embedder.broken = False
    with pytest.raises(BackendError, match="begun for another embedding model"):
        await reindexing.begin(FINGERPRINT, DIMENSION)
    again = await reindexing.begin(OTHER, OTHER_DIMENSION)
    assert again.target.name == pair.target.name
    await synchronise(again, embedder)
    assert embedder.texts == 30
    assert (await synchronise(again, embedder)).progress.brought == 0
    assert await reindexing.retire() == pair.target.name
    with pytest.raises(BackendError, match="nothing was swapped"):
        await again.swap()
    with pytest.raises(BackendError, match="nothing to go back to"):
        await reindexing.previous()


async def test_nothing_to_reindex(reindexing: OpenSearchReindexing) -> None:
    """Without an index a sentence, not an index."""
    for call in (reindexing.begin(FINGERPRINT, DIMENSION), reindexing.previous(), reindexing.retire()):
        with pytest.raises(BackendError, match="knowledge ingest"):
            await call


async def test_a_reindex_under_load(place: OpenSearchPlace, backend: Backend, reindexing: OpenSearchReindexing) -> None:
    """Writers change, remove and revoke all the time, searchers search: no search fails, none shows what its answer's time had revoked."""
    dice = random.Random(0)
    names = [f"p{index:04}" for index in range(120)]
    await backend.write(TENANT, passages(120), [])
    state: dict[str, str] = dict.fromkeys(names, "reader")
    revoked: dict[str, int] = {}
    clock, over = 0, asyncio.Event()

    async def writer(mine: list[str]) -> None:
        nonlocal clock
        while not over.is_set():
            name, kind = dice.choice(mine), dice.choice(["reader", "other", "gone"])
            revoked.pop(name, None)
            if kind == "gone":
                await backend.delete_document(TENANT, f"doc-{name}")
            else:
                changed = record(name, f"wort {name}", allowed_roles=(kind,), record_hash=f"{kind}-{clock}")
                assert await backend.write(TENANT, [changed], []) == []
            clock += 1
            state[name] = kind
            if kind != "reader":
                revoked[name] = clock

    async def searcher() -> None:
        while not over.is_set():
            hidden = dict(revoked)
            found = {*await Asked(backend).ids(lexical("wort", size=200)), *await Asked(backend).ids(vector("wort", size=200))}
            still = {name for name, at in hidden.items() if revoked.get(name) == at}
            assert found.isdisjoint(still)

    async with asyncio.TaskGroup() as tasks:
        for part in range(3):
            tasks.create_task(writer(names[part::3]))
        tasks.create_task(searcher())
        for _ in range(2):
            pair = await reindexing.begin(FINGERPRINT, DIMENSION)
            await synchronise(pair, NoEmbedder())
            await pair.swap()
            await backend.ready()
            back = await reindexing.previous()
            await synchronise(back, NoEmbedder())
            await back.swap()
            await reindexing.retire()
        over.set()
    expected = {name: kind for name, kind in state.items() if kind != "gone"}
    assert {name: roles[0] for name, (_, roles) in stored(place, behind(place)).items()} == expected


async def test_another_word_list_comes_with_a_reindex(place: OpenSearchPlace, backend: Backend) -> None:
    """The gateway with the new list refuses the old index and takes the new one; the one without it goes on with the kept index."""
    await backend.write(TENANT, [record("a", "Stickstoffmangel")], [])
    lexicon = Lexicon(compound_words=("stickstoff", "mangel"))
    compounds = compound_words(lexicon.compound_words)
    client = connect(place.url, username=None, password=None, ca_file=None, pool_size=4)
    reindexing = OpenSearchReindexing(client, place.alias, compounds=compounds)
    new = OpenSearchBackend(place.url, place.alias, tracer=NoOpTracer(), lexicon=lexicon)
    with pytest.raises(IndexMismatch, match="reindex"):
        await new.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    pair = await reindexing.begin(FINGERPRINT, DIMENSION)
    await synchronise(pair, NoEmbedder())
    await pair.swap()
    await new.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    assert await Asked(new).ids(lexical("Mangel")) == ["a"]
    assert await backend.ready()
    assert await Asked(backend).ids(lexical("Mangel")) == []
    assert await Asked(backend).ids(lexical("Stickstoffmangel")) == ["a"]
    await reindexing.aclose()
    await new.aclose()


async def test_a_half_built_index_that_is_lost_is_begun_anew(
    place: OpenSearchPlace, backend: Backend, reindexing: OpenSearchReindexing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the death of the only node that had it: the next run makes another, and writes work again."""
    monkeypatch.setattr(opensearch_reindexing, "RECOVERED_S", 1)
    await backend.write(TENANT, passages(3), [])
    pair = await reindexing.begin(FINGERPRINT, DIMENSION)
    nowhere = {"index": {"routing.allocation.require._name": "no-such-node"}}
    place.call("PUT", f"{pair.target.name}/_settings", nowhere)
    place.call("POST", f"{pair.target.name}/_close")
    place.call("POST", f"{pair.target.name}/_open?wait_for_active_shards=0")
    again = await reindexing.begin(FINGERPRINT, DIMENSION)
    health = place.call("GET", f"_cluster/health/{again.target.name}")
    assert health["status"] != "red"
    assert await backend.write(TENANT, [record("later", "danach")], []) == []
    await synchronise(again, NoEmbedder())
    await again.swap()
    assert await backend.ready()
    assert await Asked(backend).ids(lexical("danach")) == ["later"]
