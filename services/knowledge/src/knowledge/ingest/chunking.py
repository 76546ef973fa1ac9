"""Documents to chunks: authors' chunks as they are, whole texts by a splitter that knows sentences and Markdown."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from semantic_text_splitter import MarkdownSplitter, TextSplitter

from knowledge.ingest.documents import ChunkInput, DocumentInput, Reject, validation_reason

CHUNK_CHARS = (400, 1200)
"""Wanted and largest length of a chunk, in characters: the head of one fits the reranker's excerpt, the whole one an embedder."""

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
    splitter = MarkdownSplitter(CHUNK_CHARS) if document.markdown else TextSplitter(CHUNK_CHARS)
    texts = [text for window in windows(document.content) for text in splitter.chunks(window)]
    return [Chunk(f"#{ordinal}", ordinal, document.title, text) for ordinal, text in enumerate(texts)], []


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
