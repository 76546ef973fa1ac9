# ruff: noqa: RUF001 - the sign of a path is meant
"""Documents to chunks: authors' chunks as they are, long texts split at sentences and headings, nothing lost."""

from itertools import pairwise
from typing import Any

import regex
from hypothesis import given
from hypothesis import strategies as st

from knowledge.ingest.chunking import CHUNK_CHARS, OVERLAP_CHARS, PATH_CHARS, Chunk, chunk, path_title
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
    """Every character but blanks is in a chunk, in order, and again in the next one only as far as the overlap; keys are the ordinals."""
    chunks, rejects = chunked(content=text)
    if not text.strip():
        assert (chunks, [reject.reason for reject in rejects]) == ([], ["content: blank"])
        return
    whole = squeezed(text)
    ends = {0}
    for one in chunks:
        part = squeezed(one.content)
        begins = {end - back for end in ends for back in range(min(end, OVERLAP_CHARS) + 1)}
        ends = {begin + len(part) for begin in begins if whole.startswith(part, begin)}
    assert len(whole) in ends
    assert all(0 < len(one.content) <= CHUNK_CHARS[1] for one in chunks)
    assert [(one.key, one.ordinal) for one in chunks] == [(f"#{number}", number) for number in range(len(chunks))]


def squeezed(text: str) -> str:
    """Without blanks."""
    return regex.sub(r"\s", "", text)


def test_chunks_overlap_by_a_sentence() -> None:
    """What is cut stands whole in one of two neighbours."""
    chunks, _ = chunked(content=" ".join(f"Satz {number} über das Gießen im Winter." for number in range(100)))
    assert len(chunks) > 5
    for one, following in pairwise(chunks):
        assert following.content.split(".")[0] in one.content


def test_plain_text_is_split_at_sentences() -> None:
    """No chunk ends inside a word."""
    text = "Die Pflanze braucht jeden Tag ein wenig Wasser. " * 100
    chunks, _ = chunked(content=text)
    assert len(chunks) > 3
    assert all(one.content.endswith(".") for one in chunks)


HANDBOOK = """Vorwort.

# Handbuch

## Gießen *immer*

Wenig Wasser.

### Im Winter

Noch weniger.

```
# kein Titel
```

## Licht

- hell
- # auch kein Titel

Düngen
------

## Leer

# Anhang

## Auch leer
"""


def test_markdown_is_split_at_headings_and_a_chunk_knows_its_path() -> None:
    """A heading is in the title of what stands under it; a heading without any text below is its own text."""
    chunks, _ = chunked(title="Handbuch", content=HANDBOOK, markdown=True)
    assert [(one.title, one.content) for one in chunks] == [
        ("Handbuch", "Vorwort."),
        ("Handbuch › Gießen immer", "Wenig Wasser."),
        ("Handbuch › Gießen immer › Im Winter", "Noch weniger.\n\n```\n# kein Titel\n```"),
        ("Handbuch › Licht", "- hell\n- # auch kein Titel"),
        ("Handbuch › Düngen", "Düngen"),
        ("Handbuch › Leer", "Leer"),
        ("Handbuch › Anhang › Auch leer", "Auch leer"),
    ]


def test_a_long_section_keeps_its_path_in_every_chunk() -> None:
    """Also in the last one; an edit in one section leaves the texts of the others as they were."""
    text = "\n\n".join(f"## Abschnitt {number}\n\n" + f"Ein Satz über Wasser {number}. " * 60 for number in range(4))
    chunks, _ = chunked(title="T", content=text, markdown=True)
    assert len(chunks) > 8
    for one in chunks:
        number = one.content.rstrip(".")[-1]
        assert one.title == f"T › Abschnitt {number}"
    edited, _ = chunked(title="T", content=text.replace("Wasser 1. ", "Regen 1. ", 1), markdown=True)
    changed = {one.title for one in edited if (one.title, one.content) not in {(one.title, one.content) for one in chunks}}
    assert changed == {"T › Abschnitt 1"}


def test_markdown_line_ends_of_any_kind_keep_the_sections_apart() -> None:
    """CR LF, CR and the separators of Unicode, which are text."""
    chunks, _ = chunked(content="# A\r\n\r\neins\u2028# kein Titel\r# B\n\nzwei", markdown=True)
    assert [(one.title, one.content) for one in chunks] == [("A", "eins\u2028# kein Titel"), ("B", "zwei")]


def test_a_path_that_is_too_long_loses_its_middle() -> None:
    """The document and the innermost heading stay, cut where they must be; a title alone is left as it is."""
    assert path_title("T", ["a" * 150, "b" * 60, "c"]) == f"T › {'b' * 60} › c"
    assert len(path_title("T" * 300, ["a" * 300, "b" * 300])) <= PATH_CHARS
    assert path_title("T" * 300, ["b"]).endswith("… › b")
    assert path_title("T" * 300, []) == "T" * 300
    assert path_title("", []) == ""


@given(st.text(st.sampled_from("#-*`>= \n\r\tab1.\u2028"), max_size=300))
def test_any_markdown_keeps_its_words(text: str) -> None:
    """Whatever the marks say, each letter and digit is in a title or in a text."""
    chunks, _ = chunked(content=text, markdown=True)
    found = regex.sub(r"[^ab1]", "", "".join(one.title + one.content for one in chunks))
    assert set(regex.sub(r"[^ab1]", "", text)) <= set(found)
    assert all(one.content.strip() for one in chunks)


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
