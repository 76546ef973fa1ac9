"""From documents to the index: embedded once, written when changed, deleted when gone, reported when refused."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tenacity import wait_none

from knowledge.errors import BackendError, EmbeddingError
from knowledge.ingest.chunking import chunk
from knowledge.ingest.documents import DocumentInput
from knowledge.ingest.identity import build_record
from knowledge.ingest.ingestor import GROUP_CHUNKS, WRITE_CHUNKS, Ingestor, Outcome
from knowledge.models import Embeddings, Record
from services.knowledge.tests.fakes import FINGERPRINT, FakeBackend, FakeEmbedder


class Bench:
    """An ingestor over fakes."""

    def __init__(self) -> None:
        self.backend, self.embedder = FakeBackend(), FakeEmbedder()

    async def put(self, *documents: DocumentInput, tenant: str = "acme", source: str = "files") -> list[Outcome]:
        """Ingest with a new ingestor, as each run of the command does."""
        ingestor = Ingestor(self.backend, self.embedder, text_fields=("title", "content"), info_timeout_s=5.0)
        return await ingestor.ingest([(one.id, one) for one in documents], tenant=tenant, source=source)

    @property
    def contents(self) -> list[str]:
        """What is in the index."""
        return sorted(one.content for one in self.backend.records.values())


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench on which retries do not wait."""
    monkeypatch.setattr("knowledge.ingest.vectors.wait_random_exponential", lambda **_: wait_none())
    return Bench()


def document(name: str = "d", *contents: str, **fields: Any) -> DocumentInput:
    """A document of authored chunks, with ids a, b, c and so on."""
    chunks = [{"id": "abcdefghijklmnopqrstuvwxyz"[number], "content": text} for number, text in enumerate(contents or ("wasser",))]
    return DocumentInput(**{"id": name, "allowed_roles": ["reader"], "chunks": chunks, **fields})


async def test_a_new_document_is_embedded_as_passages_and_written(bench: Bench) -> None:
    """The vector belongs to the text; the outcome counts."""
    [outcome] = await bench.put(document("d", "eins", "zwei"))
    assert (outcome.status, outcome.chunks, outcome.embedded, outcome.written) == ("indexed", 2, 2, 2)
    assert {kind for _, kind, _ in bench.embedder.calls} == {"passage"}
    assert all(one.vector for one in bench.backend.records.values())


async def test_nothing_is_done_twice(bench: Bench) -> None:
    """A second run over the same documents neither embeds nor writes."""
    await bench.put(document("d", "eins", "zwei"))
    calls = len(bench.embedder.calls)
    [outcome] = await bench.put(document("d", "eins", "zwei"))
    assert (outcome.status, outcome.embedded, outcome.written) == ("unchanged", 0, 0)
    assert len(bench.embedder.calls) == calls
    assert len(bench.backend.writes) == 1


async def test_only_the_changed_chunk_is_embedded(bench: Bench) -> None:
    """Its neighbours are left alone."""
    await bench.put(document("d", "eins", "zwei"))
    [outcome] = await bench.put(document("d", "eins", "drei"))
    assert (outcome.embedded, outcome.written) == (1, 1)
    assert bench.embedder.texts == ["eins", "zwei", "drei"]
    assert bench.contents == ["drei", "eins"]


async def test_the_same_text_twice_is_embedded_once(bench: Bench) -> None:
    """Within a document, in another document of the tenant, and when a document moves to another id."""
    [outcome] = await bench.put(document("d", "wasser", "wasser"))
    assert (outcome.embedded, outcome.written) == (1, 2)
    [again] = await bench.put(document("copy", "wasser"))
    assert (again.embedded, again.written) == (0, 1)
    assert bench.embedder.texts == ["wasser"]
    assert len({one.vector for one in bench.backend.records.values()}) == 1


async def test_vectors_are_not_reused_across_tenants(bench: Bench) -> None:
    """Whether another tenant has a text must not show, not even in the time it takes."""
    await bench.put(document())
    [outcome] = await bench.put(document(), tenant="globex")
    assert outcome.embedded == 1
    assert bench.embedder.texts == ["wasser", "wasser"]


@pytest.mark.parametrize(
    "changed", [{"allowed_roles": ["board"]}, {"allowed_subjects": ["ada"]}, {"metadata": {"x": 1}}, {"importance": 0.5}, {"tags": ["t"]}]
)
async def test_a_change_beside_the_text_writes_and_embeds_nothing(bench: Bench, changed: dict[str, Any]) -> None:
    """Permissions, metadata, importance: the vector is taken from the index."""
    await bench.put(document())
    [outcome] = await bench.put(document(**changed))
    assert (outcome.status, outcome.embedded, outcome.written) == ("indexed", 0, 1)
    assert bench.embedder.texts == ["wasser"]
    assert next(iter(bench.backend.records.values())).vector


async def test_vanished_chunks_are_deleted(bench: Bench) -> None:
    """What the document no longer has is no longer found, in the same write."""
    await bench.put(document("d", "eins", "zwei", "drei"))
    [outcome] = await bench.put(document("d", "eins"))
    assert (outcome.status, outcome.deleted, outcome.written) == ("indexed", 2, 0)
    assert bench.contents == ["eins"]


async def test_other_documents_are_not_touched(bench: Bench) -> None:
    """Only the chunks of the document that came are compared."""
    await bench.put(document("d", "eins", "zwei"), document("other", "drei"))
    await bench.put(document("d", "eins"))
    assert bench.contents == ["drei", "eins"]


async def test_a_reject_keeps_no_revoked_passage_visible(bench: Bench) -> None:
    """Where the permissions changed, a chunk that could not be taken goes: it would keep the old ones."""
    await bench.put(document("d", "eins", "zwei"))
    chunks = [{"id": "a", "content": "eins"}, {"id": "b", "content": " "}]
    [outcome] = await bench.put(document("d", chunks=chunks, allowed_roles=["other"]))
    assert (outcome.status, outcome.deleted) == ("partial", 1)
    assert {one.allowed_roles for one in bench.backend.records.values()} == {("other",)}


async def test_nothing_is_deleted_where_a_reject_could_explain_the_absence(bench: Bench) -> None:
    """A chunk that became unreadable is still there afterwards, and the document says `partial`."""
    await bench.put(document("d", "eins", "zwei"))
    broken = document("d", chunks=[{"id": "a", "content": "eins"}, {"id": "b", "content": " "}])
    [outcome] = await bench.put(broken)
    assert (outcome.status, outcome.deleted, len(outcome.rejects)) == ("partial", 0, 1)
    assert bench.contents == ["eins", "zwei"]


async def test_a_refused_chunk_is_reported_and_the_others_go_in(bench: Bench) -> None:
    """One write failure does not lose the rest; the reject names the document and not the text."""
    bench.backend.refused = {"zwei"}
    [outcome] = await bench.put(document("d", "eins", "zwei"))
    assert (outcome.status, outcome.written) == ("partial", 1)
    assert outcome.rejects[0].document_id == "d"
    assert "zwei" not in outcome.rejects[0].reason
    assert bench.contents == ["eins"]


async def test_a_document_of_which_nothing_got_in_is_failed(bench: Bench) -> None:
    """`partial` would claim that something is there."""
    bench.backend.refused = {"eins", "zwei"}
    [outcome] = await bench.put(document("d", "eins", "zwei"))
    assert (outcome.status, outcome.written) == ("failed", 0)


async def test_a_flaky_embedding_service_gets_smaller_batches(bench: Bench) -> None:
    """What is too much at once goes through in parts; every text is embedded once."""
    texts = [f"wort{number}" for number in range(20)]
    bench.embedder.largest_batch = 3
    [outcome] = await bench.put(document("d", *texts))
    assert (outcome.status, outcome.written) == ("indexed", 20)
    assert sorted(bench.embedder.texts) == sorted(texts)
    assert max(len(batch) for batch, _, _ in bench.embedder.calls) <= 3


async def test_batches_are_bounded(bench: Bench) -> None:
    """Sixteen texts a call at most."""
    await bench.put(document("d", *[f"wort{number}" for number in range(26)]), document("e", *[f"x{number}" for number in range(26)]))
    assert max(len(batch) for batch, _, _ in bench.embedder.calls) == 16


async def test_a_single_text_is_tried_a_few_times(bench: Bench) -> None:
    """Two failures are got over."""
    bench.embedder.failures = [EmbeddingError("timeout"), EmbeddingError("http_503")]
    [outcome] = await bench.put(document())
    assert (outcome.status, outcome.written) == ("indexed", 1)


async def test_a_document_that_cannot_be_embedded_fails_alone(bench: Bench) -> None:
    """The next one goes in; nothing of the failed one is written, and what it had before stays."""
    await bench.put(document("bad", "alt"))
    bench.embedder.failures = [EmbeddingError("http_500")] * 5  # of both together, then of the bad one alone
    bad, good = await bench.put(document("bad", "neu"), document("good", "gut"))
    assert (bad.status, good.status) == ("failed", "indexed")
    assert bad.rejects[0].reason == "embedding: http_500"
    assert bench.contents == ["alt", "gut"]


async def test_a_service_that_is_not_there_at_all_stops_the_run_before_anything_is_written(bench: Bench) -> None:
    """Without the fingerprint no hash can be made."""
    bench.embedder.down = True
    with pytest.raises(EmbeddingError):
        await bench.put(document())
    assert bench.backend.writes == []


async def test_an_index_that_does_not_fit_stops_the_run(bench: Bench) -> None:
    """The sentence of the backend is what the user hears."""
    bench.backend.mismatch = "another model"
    with pytest.raises(BackendError, match="another model"):
        await bench.put(document())


async def test_a_failing_write_fails_the_document_and_not_the_run(bench: Bench) -> None:
    """What the backend says is in the reject; the documents that were to be written together go in one by one."""
    write = bench.backend.write

    async def flaky(tenant: str, upserts: Sequence[Record], delete_ids: Sequence[str]) -> Any:
        if any(one.document_id == "bad" for one in upserts):
            raise BackendError("timeout")
        return await write(tenant, upserts, delete_ids)

    bench.backend.write = flaky  # type: ignore[method-assign]
    bad, good = await bench.put(document("bad", "eins"), document("good", "zwei"))
    assert (bad.status, bad.rejects[0].reason, good.status) == ("failed", "search backend: timeout", "indexed")


async def test_a_run_that_was_killed_and_run_again_gives_the_same_index(bench: Bench) -> None:
    """Whatever had been written when it died: a second run ends where one clean run ends."""
    documents = [document(str(number), f"text{number}", "gemeinsam") for number in range(4)]
    clean = Bench()
    await clean.put(*documents)
    for survived in range(5):
        crashed = Bench()
        await crashed.put(*documents[:survived])
        crashed.backend.records.update(dict(list(clean.backend.records.items())[: survived + 1]))
        await crashed.put(*documents)
        assert crashed.backend.records == clean.backend.records


async def test_each_document_is_reported_as_it_goes_in(bench: Bench) -> None:
    """Progress is told document by document."""
    heard: list[str] = []
    ingestor = Ingestor(bench.backend, bench.embedder, text_fields=("content",), info_timeout_s=5.0)
    documents = [(one.id, one) for one in (document("a"), document("b"))]
    await ingestor.ingest(documents, tenant="acme", source="files", on_document=lambda outcome: heard.append(outcome.document_id))
    assert heard == ["a", "b"]


async def test_many_small_documents_share_embedding_calls_and_writes(bench: Bench) -> None:
    """Two hundred documents of one chunk: thirteen calls and one write, and still one outcome each, in order."""
    outcomes = await bench.put(*[document(str(number), f"wort{number}") for number in range(200)])
    assert [(one.document_id, one.status, one.embedded, one.written) for one in outcomes] == [
        (str(number), "indexed", 1, 1) for number in range(200)
    ]
    assert len(bench.embedder.calls) == 13
    assert [len(upserts) for upserts, _ in bench.backend.writes] == [200]


async def test_the_next_group_is_embedded_while_one_is_written(bench: Bench) -> None:
    """A write that waits for the embedding of what comes after it would wait for ever otherwise."""
    embedded, write = asyncio.Event(), bench.backend.write
    embed = bench.embedder.embed

    async def telling(texts: Sequence[str], *given: Any) -> Embeddings:
        if "letztes" in texts:
            embedded.set()
        return await embed(texts, *given)

    async def waiting(*given: Any) -> Any:
        await asyncio.wait_for(embedded.wait(), 5)
        return await write(*given)

    bench.embedder.embed, bench.backend.write = telling, waiting  # type: ignore[method-assign]
    outcomes = await bench.put(*[document(str(number), f"wort{number}") for number in range(64)], document("last", "letztes"))
    assert {one.status for one in outcomes} == {"indexed"}


async def test_a_text_that_is_on_its_way_is_not_embedded_again(bench: Bench) -> None:
    """Neither within a group nor in the next one, which is embedded before the first one is stored."""
    outcomes = await bench.put(*[document(str(number), "wasser") for number in range(65)])
    assert bench.embedder.texts == ["wasser"]
    assert [one.embedded for one in outcomes] == [1] + [0] * 64
    assert len(bench.backend.records) == 65


@pytest.mark.parametrize("between", [0, 70])
async def test_a_document_twice_in_a_run_ends_as_the_last_one(bench: Bench, between: int) -> None:
    """The second is compared with what the first left, in the same group or in the next: its vanished chunk goes."""
    first, second = document("d", "eins", "zwei"), document("d", "eins")
    outcomes = await bench.put(*[document(str(number)) for number in range(between)], first, second, second)
    assert [(one.status, one.written, one.deleted) for one in outcomes[-3:]] == [("indexed", 2, 0), ("indexed", 0, 1), ("unchanged", 0, 0)]
    assert "zwei" not in bench.contents


async def test_a_text_that_cannot_be_embedded_fails_its_document_alone(bench: Bench) -> None:
    """Whatever else was in its batch goes in, and is embedded once."""
    embed = bench.embedder.embed

    async def refusing(texts: Sequence[str], *given: Any) -> Embeddings:
        if "wort7" in texts:
            raise EmbeddingError("http_422")
        return await embed(texts, *given)

    bench.embedder.embed = refusing  # type: ignore[method-assign]
    outcomes = await bench.put(*[document(str(number), f"wort{number}") for number in range(40)])
    assert [one.document_id for one in outcomes if one.status == "failed"] == ["7"]
    assert sorted(bench.embedder.texts) == sorted(f"wort{number}" for number in range(40) if number != 7)


async def test_a_document_of_which_one_text_cannot_be_embedded_stays_as_it_was(bench: Bench) -> None:
    """Half of a document would be worse than all of the old one."""
    await bench.put(document("d", "alt", "eins"))
    bench.embedder.failures = [EmbeddingError("http_500")] * 5
    [outcome] = await bench.put(document("d", "neu", "zwei"))
    assert (outcome.status, outcome.written, outcome.embedded, bench.contents) == ("failed", 0, 0, ["alt", "eins"])


async def test_vectors_of_another_model_are_not_stored(bench: Bench) -> None:
    """A service that was replaced while the gateway runs must not mix its vectors with the old ones."""
    await bench.put(document("a"))
    embed = bench.embedder.embed

    async def other(*given: Any) -> Embeddings:
        return Embeddings((await embed(*given)).vectors, "other", "other/1")

    bench.embedder.embed = other  # type: ignore[method-assign]
    [outcome] = await bench.put(document("b", "neu"))
    assert (outcome.status, outcome.rejects[0].reason) == ("failed", "embedding: another_model")


@pytest.mark.parametrize("method", ["stored_chunks", "stored_vectors"])
async def test_a_lookup_that_fails_for_one_document_fails_it_alone(bench: Bench, method: str) -> None:
    """The others of its group go in."""
    asked = getattr(bench.backend, method)
    bad_hash = bench_hash(document("bad", "schlecht"))

    async def flaky(tenant: str, what: Any) -> Any:
        if "bad" in what or bad_hash in what:
            raise BackendError("timeout")
        return await asked(tenant, what)

    setattr(bench.backend, method, flaky)
    outcomes = await bench.put(document("a", "eins"), document("bad", "schlecht"), document("b", "zwei"))
    assert [one.status for one in outcomes] == ["indexed", "failed", "indexed"]
    assert bench.contents == ["eins", "zwei"]


def bench_hash(one: DocumentInput) -> str:
    """The embed_hash of a document's first chunk."""
    chunks, _ = chunk(one, "place")
    kind = {"tenant": "acme", "source": "files", "fingerprint": FINGERPRINT}
    return build_record(one, chunks[0], text_fields=("title", "content"), **kind).embed_hash


async def test_refusals_of_a_shared_write_reach_their_own_documents(bench: Bench) -> None:
    """By the chunk's id."""
    bench.backend.refused = {"zwei"}
    outcomes = await bench.put(document("a", "eins"), document("b", "zwei", "drei"), document("c", "vier"))
    assert [(one.status, one.written, len(one.rejects)) for one in outcomes] == [("indexed", 1, 0), ("partial", 1, 1), ("indexed", 1, 0)]
    assert len(bench.backend.writes) == 1


async def test_documents_are_read_as_they_are_needed(bench: Bench) -> None:
    """A source of any length is never held as a whole: at most two writes and a group are read ahead of what is in."""
    read = 0
    ahead: list[int] = []

    def endless() -> Iterator[tuple[str, DocumentInput]]:
        nonlocal read
        for number in range(3000):
            read += 1
            yield "place", document(str(number))

    done = 0

    def on_document(_: Outcome) -> None:
        nonlocal done
        done += 1
        ahead.append(read - done)

    ingestor = Ingestor(bench.backend, bench.embedder, text_fields=("content",), info_timeout_s=5.0)
    await ingestor.ingest(endless(), tenant="acme", source="files", on_document=on_document)
    assert (done, max(ahead) <= 2 * (WRITE_CHUNKS + GROUP_CHUNKS)) == (3000, True)
