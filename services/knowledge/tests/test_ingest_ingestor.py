"""From documents to the index: embedded once, written when changed, deleted when gone, reported when refused."""

from typing import Any

import pytest
from tenacity import wait_none

from knowledge.errors import BackendError, EmbeddingError
from knowledge.ingest.documents import DocumentInput
from knowledge.ingest.ingestor import Ingestor, Outcome
from services.knowledge.tests.fakes import FakeBackend, FakeEmbedder


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
    monkeypatch.setattr("knowledge.ingest.ingestor.wait_random_exponential", lambda **_: wait_none())
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
    bench.embedder.failures = [EmbeddingError("http_500")] * 4
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
    """What the backend says is in the reject."""
    write, calls = bench.backend.write, 0

    async def flaky(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise BackendError("timeout")
        return await write(*given)

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
