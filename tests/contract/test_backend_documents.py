"""What both backends promise when they keep documents: acknowledged means searchable, refused means named, removed means gone."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from knowledge.models import StoredChunk
from knowledge.ports import Backend
from tests.contract.places import DIMENSION, TENANT, Asked, embed, identifier, lexical, record, seen_by, vector


async def test_what_is_written_is_searchable_at_once(backend: Backend, asked: Asked) -> None:
    """On every leg, for every write, without a wait."""
    for round_ in range(5):
        name = f"p{round_}"
        await backend.write(TENANT, [record(name, f"einzig{round_}", identifiers=(f"id-{round_}",))], [])
        assert await asked.ids(lexical(f"einzig{round_}")) == [name]
        assert await asked.ids(identifier(f"id-{round_}")) == [name]
        assert (await asked.ids(vector(f"einzig{round_}")))[0] == name


async def test_a_second_write_replaces_the_first(backend: Backend, asked: Asked) -> None:
    """No old word, identifier, tag, facet, language or vector stays behind."""
    before = record("a", "alt", identifiers=("old-1",), tags=("old",), metadata={"m": "old"})
    after = record("a", "neu", language="en", identifiers=("new-1",), tags=("new",), metadata={"m": "new"})
    await backend.write(TENANT, [before], [])
    await backend.write(TENANT, [after], [])
    assert await asked.ids(lexical("alt")) == []
    assert await asked.ids(lexical("neu", language="de")) == []
    assert await asked.ids(lexical("neu", language="en")) == ["a"]
    assert await asked.ids(identifier("old-1", "new-1")) == ["a"]
    assert await asked.ids(identifier("old-1")) == []
    (hit,) = await asked.hits(vector("neu"))
    assert hit.score == pytest.approx(1, abs=1e-6)
    for name in ("tags", "m"):
        assert await asked.ids(vector("neu", filters=((name, ("old",)),))) == []
        assert await asked.ids(vector("neu", filters=((name, ("new",)),))) == ["a"]
    assert await backend.write(TENANT, [replace(after, title="1"), replace(after, title="2")], []) == []
    assert [hit.passage.title for hit in await asked.hits(lexical("neu"))] == ["2"]


async def test_a_removed_document_is_gone_at_once(backend: Backend, asked: Asked) -> None:
    """From every leg and every look-up, with the number of its chunks as the answer; the neighbours stay."""
    chunks = [record(f"c{index}", "rote blume", document_id="d", ordinal=index, identifiers=("ph",)) for index in range(700)]
    assert await backend.write(TENANT, [*chunks, record("stays", "rote blume", identifiers=("ph",))], []) == []
    assert len((await backend.stored_chunks(TENANT, ["d"]))["d"]) == 700
    assert await backend.delete_document(TENANT, "d") == 700
    for query in (lexical("blume"), vector("rote blume"), identifier("ph")):
        assert await asked.ids(query) == ["stays"]
    assert await backend.document("d", seen_by("reader")) is None
    assert await backend.permissions(TENANT, "d") is None
    assert (await backend.stored_chunks(TENANT, ["d"]))["d"] == []
    assert await backend.stored_vectors(TENANT, ["embed-c0"]) == {}
    assert await backend.document_ids(TENANT, "tests") == {"doc-stays"}
    assert await backend.delete_document(TENANT, "d") == 0


async def test_vanished_chunks_go_with_the_same_write(backend: Backend, asked: Asked) -> None:
    """New chunks in and old chunks out; an id that is not there is no failure."""
    await backend.write(TENANT, [record("a", "wort", document_id="d"), record("b", "wort", document_id="d")], [])
    assert await backend.write(TENANT, [record("c", "wort", document_id="d")], ["a", "absent"]) == []
    assert await asked.ids(lexical("wort")) == ["b", "c"]
    assert {chunk.id for chunk in (await backend.stored_chunks(TENANT, ["d"]))["d"]} == {"b", "c"}
    assert await backend.write(TENANT, [], []) == []


async def test_a_writer_touches_its_own_tenant_only(backend: Backend, asked: Asked) -> None:
    """The same ids in two tenants are two chunks; removing one leaves the other."""
    mine, theirs = record("a", "eigenes"), record("a", "fremdes", tenant="other")
    await backend.write(TENANT, [mine], [])
    await backend.write("other", [theirs], [])
    reader = seen_by("reader", tenant="other")
    assert [(await asked.ids(lexical("eigenes"))), await asked.ids(lexical("fremdes", reader))] == [["a"], ["a"]]
    await backend.write("other", [], ["a"])
    assert [(await asked.ids(lexical("eigenes"))), await asked.ids(lexical("fremdes", reader))] == [["a"], []]
    assert await backend.delete_document("other", "doc-a") == 0
    assert await asked.ids(lexical("eigenes")) == ["a"]
    (refused,) = await backend.write("other", [mine], [])
    assert "tenant" in refused.reason
    assert await backend.document_ids("other", "tests") == set()


async def test_vectors_are_reused_inside_the_tenant_only(backend: Backend) -> None:
    """By embed_hash, exactly as they were written, never across tenants."""
    records = [record(f"p{index}", f"text {index}") for index in range(450)]
    await backend.write(TENANT, [*records, record("without", vector=())], [])
    await backend.write("other", [record("x", "fremd", tenant="other", embed_hash="shared")], [])
    await backend.write(TENANT, [record("twin", "text 0", embed_hash="embed-p0")], [])
    wanted = [one.embed_hash for one in records]
    found = await backend.stored_vectors(TENANT, [*wanted, "embed-p0", "embed-without", "shared", "absent"])
    assert found == {one.embed_hash: one.vector for one in records}
    assert set(await backend.stored_vectors("other", [*wanted, "shared"])) == {"shared"}
    assert await backend.stored_vectors(TENANT, []) == {}


async def test_a_chunk_without_a_vector_is_found_by_words(backend: Backend, asked: Asked) -> None:
    """It is missing in the vector leg and nowhere else."""
    assert await backend.write(TENANT, [record("a", "wort", vector=())], []) == []
    assert await asked.ids(lexical("wort")) == ["a"]
    assert await asked.ids(vector("wort")) == []


async def test_the_writer_knows_what_is_stored(backend: Backend) -> None:
    """Ids and both hashes of a document, in its order; documents by source and tenant."""
    chunks = [record(f"c{index}", document_id="d", ordinal=9 - index) for index in range(10)]
    await backend.write(TENANT, [*chunks, record("e", source="else")], [])
    stored = (await backend.stored_chunks(TENANT, ["d"]))["d"]
    assert stored == [StoredChunk(f"c{index}", f"embed-c{index}", f"record-c{index}") for index in range(9, -1, -1)]
    assert (await backend.stored_chunks("other", ["d"]))["d"] == []
    assert await backend.document_ids(TENANT, "tests") == {"d"}
    assert await backend.document_ids(TENANT, "else") == {"doc-e"}
    assert await backend.document_ids(TENANT, "absent") == set()


async def test_a_source_may_have_many_documents(backend: Backend) -> None:
    """More than one page of them."""
    records = [record(f"p{index}", vector=()) for index in range(1100)]
    assert await backend.write(TENANT, records, []) == []
    assert await backend.document_ids(TENANT, "tests") == {one.document_id for one in records}


async def test_what_cannot_be_stored_is_named_and_the_rest_goes_in(backend: Backend, asked: Asked) -> None:
    """A reason names the field and repeats nothing of the document."""
    secret = "streng geheim"
    bad = {
        "dimension": record("dimension", secret, vector=(1.0, 2.0)),
        "zero": record("zero", secret, vector=(0.0,) * DIMENSION),
        "nan": record("nan", secret, vector=(float("nan"),) * DIMENSION),
        "tiny": record("tiny", secret, vector=(1e-46,) * DIMENSION),
        "huge": record("huge", secret, vector=(1e39,) * DIMENSION),
        "surrogate": record("surrogate", f"{secret} \ud800"),
        "role": record("role", secret, allowed_roles=("ro\udfffle",)),
        "metadata-nan": record("metadata-nan", secret, metadata={"x": float("inf")}),
        "metadata-text": record("metadata-text", secret, metadata={"x": {"y": [f"{secret}\ud800"]}}),
        "metadata-object": record("metadata-object", secret, metadata={"x": object()}),
        "importance": record("importance", secret, importance=float("nan")),
        "long-tag": record("long-tag", secret, tags=("t" * 40_000,)),
        "long-role": record("long-role", secret, allowed_roles=("r" * 40_000,)),
    }
    good = record("good", "gut")
    failures = await backend.write(TENANT, [good, *bad.values()], [])
    assert {failure.id for failure in failures} == set(bad)
    assert all(secret not in failure.reason and 0 < len(failure.reason) < 120 for failure in failures)
    assert await asked.ids(lexical("gut")) == ["good"]
    assert await asked.ids(lexical(secret)) == []


async def test_metadata_never_breaks_a_write(backend: Backend, asked: Asked) -> None:
    """Any JSON object goes in and comes back; the same name may hold anything."""
    values = [
        1,
        "1",
        1.5,
        True,
        None,
        [],
        {},
        [[1]],
        {"a": {"b": "c"}},
        "lang" * 10_000,
        "2024-01-01",
        "\x00\x1f",
        ["x", 1, None],
    ]
    records = [record(f"p{index:02}", "wort", metadata={"same": value, f"own {index}": value}) for index, value in enumerate(values)]
    many = record("many", "wort", metadata={f"key-{index}": f"value-{index}" for index in range(3000)})
    assert await backend.write(TENANT, [*records, many], []) == []
    hits = {hit.passage.id: hit.passage.metadata for hit in await asked.hits(lexical("wort"))}
    assert hits == {one.id: one.metadata for one in [*records, many]}
    assert await asked.ids(lexical("wort", filters=(("same", ("1",)),))) == ["p00", "p01", "p12"]
    assert await asked.ids(lexical("wort", filters=(("key-2999", ("value-2999",)),))) == ["many"]


async def test_writers_and_searchers_do_not_hinder_each_other(backend: Backend, asked: Asked) -> None:
    """Several at once: every write is complete, and no search fails."""

    async def write(number: int) -> None:
        for round_ in range(5):
            chunks = [record(f"w{number}-{index}", f"runde{round_} wort", document_id=f"d{number}") for index in range(10)]
            assert await backend.write(TENANT, chunks, []) == []

    async def search() -> None:
        for _ in range(20):
            assert len(await asked.hits(lexical("wort"))) <= 50
            await asked.hits(vector("wort"))

    await asyncio.gather(*(write(number) for number in range(4)), search(), search())
    assert len(await asked.hits(lexical("runde4"))) == 40
    assert await asked.ids(lexical("runde3")) == []


async def test_large_writes_go_in_whole(backend: Backend, asked: Asked) -> None:
    """More than one bulk request by size."""
    text = " ".join(f"wort{index}" for index in range(10_000))
    records = [record(f"p{index:03}", f"{text} eigen{index}", vector=embed("x")) for index in range(20)]
    assert await backend.write(TENANT, records, []) == []
    assert len(await backend.document_ids(TENANT, "tests")) == 20
    assert await asked.ids(lexical("eigen19")) == ["p019"]
