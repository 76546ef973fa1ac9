"""Documents to chunks: authors' chunks as they are, long texts split at sentences and headings, nothing lost."""

from typing import Any

import regex
from hypothesis import given
from hypothesis import strategies as st

from knowledge.ingest.chunking import CHUNK_CHARS, Chunk, chunk
from knowledge.ingest.documents import DocumentInput, Reject


def chunked(**document: Any) -> tuple[list[Chunk], list[Reject]]:
    """The chunks and rejects of a document."""
    return chunk(DocumentInput(**{"id": "d", **document}), "place")


def test_a_short_text_is_one_chunk() -> None:
    """With the document's title and the ordinal as its key."""
    assert chunked(title="T", content="Wasser.") == ([Chunk("#0", 0, "T", "Wasser.")], [])


@given(
    st.lists(
        st.sampled_from(["Wasser ist nass.", "Licht!", "gelb", "\n\n", "ä" * 50, "\U0001f468\u200d\U0001f469"]), min_size=1, max_size=200
    ).map(" ".join)
)
def test_splitting_loses_no_word_and_keeps_to_the_largest_length(text: str) -> None:
    """Every character but blanks is in exactly one chunk, in order; keys are the ordinals."""
    chunks, rejects = chunked(content=text)
    if not text.strip():
        assert (chunks, [reject.reason for reject in rejects]) == ([], ["content: blank"])
        return
    squeezed = "".join(regex.sub(r"\s", "", one.content) for one in chunks)
    assert squeezed == regex.sub(r"\s", "", text)
    assert all(0 < len(one.content) <= CHUNK_CHARS[1] for one in chunks)
    assert [(one.key, one.ordinal) for one in chunks] == [(f"#{number}", number) for number in range(len(chunks))]


def test_plain_text_is_split_at_sentences() -> None:
    """No chunk ends inside a word."""
    text = "Die Pflanze braucht jeden Tag ein wenig Wasser. " * 100
    chunks, _ = chunked(content=text)
    assert len(chunks) > 3
    assert all(one.content.endswith(".") for one in chunks)


def test_markdown_is_split_at_headings() -> None:
    """A new section begins a new chunk where sections are long enough."""
    sections = [f"## Abschnitt {number}\n\n" + "Ein Satz über Wasser. " * 30 for number in range(4)]
    chunks, _ = chunked(content="\n\n".join(sections), markdown=True)
    starts = [one.content for one in chunks if one.content.startswith("## Abschnitt")]
    assert len(starts) == 4


def test_a_blank_text_is_a_reject() -> None:
    """With the document's id, so that pruning knows of it."""
    assert chunked(content=" \n\t") == ([], [Reject("place", "content: blank", "d")])


def test_authored_chunks_keep_their_ids_titles_and_order() -> None:
    """The id is the key; without one it is the ordinal; the title defaults to the document's."""
    given = [{"id": "a", "title": "A", "content": " eins ", "metadata": {"x": 1}}, {"content": "zwei"}]
    chunks, rejects = chunked(title="D", chunks=given)
    assert chunks == [Chunk("a", 0, "A", "eins", {"x": 1}), Chunk("#1", 1, "D", "zwei")]
    assert rejects == []


def test_a_chunk_that_cannot_be_taken_leaves_the_others() -> None:
    """Duplicate id, no text, unknown field, no object: each is a reject with its place, and the rest goes in."""
    given = [
        {"id": "a", "content": "eins"},
        {"id": "a", "content": "zwei"},
        {"id": "b", "content": " "},
        {"content": "x", "nope": 1},
        "text",
        {"id": "c"},
    ]
    chunks, rejects = chunked(chunks=given)
    assert [one.content for one in chunks] == ["eins"]
    assert [reject.place for reject in rejects] == [f"place chunk {number}" for number in range(2, 7)]
    assert {reject.document_id for reject in rejects} == {"d"}
    assert [reject.chunk_id for reject in rejects] == ["a", "b", None, None, "c"]


def test_a_given_id_cannot_hide_behind_an_ordinal() -> None:
    """`#0` given by an author clashes with the first chunk's own key, and that is a reject, not an overwrite."""
    chunks, rejects = chunked(chunks=[{"content": "eins"}, {"id": "#0", "content": "zwei"}])
    assert ([one.content for one in chunks], len(rejects)) == (["eins"], 1)


def test_a_blank_chunk_id_is_a_reject() -> None:
    """An id of blanks is no id, and is not silently taken for none."""
    chunks, rejects = chunked(chunks=[{"id": "  ", "content": "eins"}, {"id": "b", "content": "zwei"}])
    assert ([one.key for one in chunks], len(rejects)) == (["b"], 1)


def test_an_empty_list_of_chunks_is_a_reject() -> None:
    """A document without any text is not in the index."""
    assert chunked(chunks=[]) == ([], [Reject("place", "chunks: empty", "d")])
