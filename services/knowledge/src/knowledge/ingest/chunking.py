"""Documents to chunks: authors' chunks as they are, whole texts by a splitter that knows sentences and Markdown.

A chunk of a text with headings has the path to its place as its title, the document's title first: it is embedded, searched and reranked
with it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from semantic_text_splitter import MarkdownSplitter, TextSplitter

from knowledge.ingest.documents import MAX_TITLE_CHARS, ChunkInput, DocumentInput, Reject, validation_reason
from knowledge.ingest.headings import Section, sections

CHUNK_CHARS = (400, 1200)
"""Wanted and largest length of a chunk, in characters: the wanted one fits the reranker's excerpt (500) with its title, the largest one
the smallest embedding model's window (512 tokens, about 1500 characters of German)."""

OVERLAP_CHARS = 80
"""Of two chunks that follow each other: about a sentence, so that a thought which is cut stands whole in one of them."""

PATH_CHARS = 200
"""Of a chunk's title: the rest of the reranker's excerpt is for its text."""

SEPARATOR = " › "  # noqa: RUF001 - the sign of a path, as it is meant
WINDOW_CHARS = 50_000


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk with its key: the id its author gave, else its ordinal."""

    key: str
    ordinal: int
    title: str
    content: str
    metadata: dict[str, Any] = field(default_factory=dict)


def chunk(document: DocumentInput, place: str) -> tuple[list[Chunk], list[Reject]]:
    """The chunks of a document, and those that cannot be taken. The others are kept."""
    if document.chunks is not None:
        return _authored(document, document.chunks, place)
    if not document.content.strip():
        return [], [Reject(place, "content: blank", document.id)]
    return [Chunk(f"#{ordinal}", ordinal, title, text) for ordinal, (title, text) in enumerate(_split(document))], []


def _split(document: DocumentInput) -> Iterator[tuple[str, str]]:
    """(title, text) of the chunks of a whole text."""
    kind = MarkdownSplitter if document.markdown else TextSplitter
    splitter = kind(CHUNK_CHARS, overlap=OVERLAP_CHARS)
    for section in sections(document.content) if document.markdown else [Section((), document.content)]:
        title = path_title(document.title, section.headings)
        for window in windows(section.text):
            for text in splitter.chunks(window):
                yield title, text


def path_title(title: str, headings: Sequence[str]) -> str:
    """The document's title and the headings below it; where that is too long, the outer headings are left out first."""
    path = [*([title] if title and title != next(iter(headings), None) else []), *headings]
    while len(path) > 2 and len(SEPARATOR.join(path)) > PATH_CHARS:
        del path[1]
    if len(path) < 2 or len(SEPARATOR.join(path)) <= PATH_CHARS:
        return SEPARATOR.join(path)[:MAX_TITLE_CHARS]
    half = (PATH_CHARS - len(SEPARATOR)) // 2
    return SEPARATOR.join(part if len(part) <= half else part[: half - 1] + "…" for part in path)


def windows(text: str) -> Iterator[str]:
    """`text` in parts of at most `WINDOW_CHARS`, cut at a blank line or a blank: the splitter is quadratic where no sentence ends."""
    start = 0
    while len(text) - start > WINDOW_CHARS:
        end = start + WINDOW_CHARS
        at = next((at for mark in ("\n\n", "\n", " ") if (at := text.rfind(mark, start + 1, end)) > 0), end)
        yield text[start:at]
        start = at
    yield text[start:]


def _authored(document: DocumentInput, given: list[Any], place: str) -> tuple[list[Chunk], list[Reject]]:
    chunks: dict[str, Chunk] = {}
    rejects: list[Reject] = []
    for ordinal, raw in enumerate(given):
        where = f"{place} chunk {ordinal + 1}"
        try:
            one = ChunkInput.model_validate(raw)
        except ValidationError as error:
            rejects.append(Reject(where, validation_reason(error), document.id))
            continue
        key = one.id or f"#{ordinal}"
        if not one.content.strip():
            rejects.append(Reject(where, "content: blank", document.id, one.id))
        elif key in chunks:
            rejects.append(Reject(where, "id: there is a chunk with this id before it", document.id, one.id))
        else:
            chunks[key] = Chunk(key, ordinal, one.title or document.title, one.content.strip(), one.metadata)
    if not given:
        rejects.append(Reject(place, "chunks: empty", document.id))
    return list(chunks.values()), rejects
