"""What a gateway, a gateway that only serves, a reindex and a doctor do with a cluster: everything that a role must allow, and no more."""

from collections.abc import Awaitable, Callable

from knowledge.adapters.opensearch_documents import key
from knowledge.ingest.reindex import Synchronisation, compare
from knowledge.ingest.vectors import Embedding
from knowledge.models import Difference, Verdict
from knowledge.ports import Backend, IndexPair, Reindexing
from tests.cluster.gateway import ToyEmbedder
from tests.contract.places import DIMENSION, FINGERPRINT, READER, TENANT, TIMEOUT_S, identifier, lexical, record, vector

Scenario = Callable[[Backend, Reindexing], Awaitable[None]]
PASSAGES = [record(f"p{number}", f"wasser w{number}", identifiers=(f"POL-{number}",)) for number in range(6)]


async def prepare(store: Backend, _: object = None) -> None:
    """An index with the passages."""
    await store.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    assert await store.write(TENANT, PASSAGES, []) == []


async def serve(store: Backend, _: Reindexing) -> None:
    """Searches, documents and numbers out of an index that is there."""
    await store.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    assert await store.ready()
    legs = await store.msearch([lexical("w3"), vector("wasser w3", size=1), identifier("POL-3")], TIMEOUT_S)
    assert [[hit.passage.id for hit in leg.hits] for leg in legs] == [["p3"]] * 3
    found = await store.document("doc-p3", READER)
    assert found is not None
    assert found.document_id == "doc-p3"
    (source,) = (await store.statistics(TENANT)).sources
    assert (source.source, source.chunks) == ("tests", len(PASSAGES))


async def serve_and_write(store: Backend, reindexing: Reindexing) -> None:
    """Make the index, fill it, serve, look up what a writer must know, remove."""
    await prepare(store)
    await serve(store, reindexing)
    assert await store.document_ids(TENANT, "tests") == {f"doc-p{number}" for number in range(len(PASSAGES))}
    assert await store.permissions(TENANT, "doc-p1") == (("reader",), ())
    assert [chunk.id for chunk in (await store.stored_chunks(TENANT, ["doc-p1"]))["doc-p1"]] == ["p1"]
    assert list(await store.stored_vectors(TENANT, ["embed-p1"])) == ["embed-p1"]
    assert await store.write(TENANT, [], ["p0"]) == []
    assert await store.delete_document(TENANT, "doc-p1") == 1
    assert await store.document_ids(TENANT, "tests") == {f"doc-p{number}" for number in range(2, len(PASSAGES))}


async def reindex(_: Backend, reindexing: Reindexing) -> None:
    """Build beside, bring over, compare, swap; back; delete the one beside."""
    there = await reindexing.begin(FINGERPRINT, DIMENSION)
    # As a writer leaves it that was killed between both indices: a passage that the searched one does not have (any more).
    await there.write_target([(Difference(key(TENANT, "surplus"), in_source=False, target_version=None), record("surplus"))])
    await _bring_over(there)
    await there.swap()
    back = await reindexing.previous()
    await _bring_over(back)
    await back.swap()
    assert await reindexing.retire() == there.target.name


async def _bring_over(pair: IndexPair) -> None:
    await Synchronisation(pair, Embedding(ToyEmbedder(), fingerprint=FINGERPRINT, timeout_s=5)).run()
    # It refreshes: `compare` searches first and counts afterwards, and so few passages are brought over in one round without a refresh.
    assert await pair.counts() == (len(PASSAGES), len(PASSAGES))
    comparison = await compare(pair)
    assert comparison.worse == []


async def examine(store: Backend, _: Reindexing) -> None:
    """What `knowledge doctor` looks at."""
    findings = await store.examine()
    assert [finding for finding in findings if finding.verdict is Verdict.BROKEN] == []
