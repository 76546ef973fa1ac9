"""As many passages as are asked for: a data set's own, then copies with other words, other ids and vectors nearby. Seeded."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from knowledge.identifiers import query_identifiers
from knowledge.ingest.chunking import Chunk, chunk
from knowledge.ingest.documents import DocumentInput
from knowledge.ingest.identity import build_record
from knowledge.models import Record
from tests.load.stack import ROLE, TENANT
from tests.quality.data import load

DIMENSION = 384
FINGERPRINT = "synthetic"
SOURCE = "scale"
TEXT_FIELDS = ("title", "content")
NEARBY = 0.5
"""Length of what is added to a vector of length 1 for a copy or a question: their cosine is about 0.9."""

DECIMALS = 6
SHELVES = ("one", "two", "three", "four")
SEARCHED_SHELVES = ("one", "three")
"""Each passage stands on one shelf, its document's tag; a search looks at half of them."""

Vector = NDArray[np.float64]
"""Shape (384,)."""

Vectors = NDArray[np.float64]
"""Shape (passages, 384)."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its vector."""

    text: str
    vector: list[float]


class Passages:
    """Passages 0, 1, 2 and so on; the same ones in each run. The data set must have chunks or files of its own."""

    def __init__(self, folder: Path) -> None:
        data = load(folder, ("kamerplanter",))[0]
        self.name = data.name
        self._base = [(document, chunk(document, place)[0]) for place, document in data.documents]
        self._questions = [question.text for question in data.questions]
        whole = sum(len(chunks) for _, chunks in self._base)
        self._vectors = _directions(0, whole)
        self._originals = [one for document, vectors in self.documents(whole) for one in records_of(document, vectors)]

    def questions(self) -> list[Asked]:
        """The questions for which the gateway sends two searches as the raw client does: those without an identifier."""
        texts = [text for text in self._questions if not query_identifiers((text,)).all]
        rows = np.random.default_rng(1).integers(len(self._vectors), size=len(texts))
        near = _nearby(self._vectors[rows], seed=1)
        return [Asked(text, vector.tolist()) for text, vector in zip(texts, near, strict=True)]

    def documents(self, passages: int) -> Iterator[tuple[DocumentInput, Vectors]]:
        """Documents with the vectors of their passages, `passages` in all; the last document may be cut."""
        left = passages
        for copy in count():
            vectors, start = self._vectors if copy == 0 else _nearby(self._vectors, seed=copy + 1), 0
            for number, (document, chunks) in enumerate(self._base):
                some = chunks[:left]
                yield _copy(document, some, copy, number), vectors[start : start + len(some)]
                start, left = start + len(chunks), left - len(some)
                if not left:
                    return

    def records(self, first: int, last: int) -> Iterator[Record]:
        """Passages `first` to before `last` as they are stored. Only those of the data set itself are read as a writer reads them."""
        size, vectors, current = len(self._vectors), self._vectors, 0
        for index in range(first, last):
            copy, place = divmod(index, size)
            if copy != current:
                vectors, current = _nearby(self._vectors, seed=copy + 1), copy
            yield _copied(self._originals[place], copy, vectors[place])


def records_of(document: DocumentInput, vectors: Vectors) -> list[Record]:
    """A document's records with their vectors."""
    build = partial(build_record, document, tenant=TENANT, source=SOURCE, text_fields=TEXT_FIELDS, fingerprint=FINGERPRINT)
    chunks, _ = chunk(document, document.id)
    return [replace(build(one), vector=tuple(vector.tolist())) for one, vector in zip(chunks, vectors, strict=True)]


def _copy(document: DocumentInput, chunks: Sequence[Chunk], copy: int, number: int) -> DocumentInput:
    bodies = [{"id": one.key, "title": one.title, "content": _varied(one.content, copy)} for one in chunks]
    return DocumentInput(
        id=f"{document.id}~{copy}",
        title=document.title,
        language=document.language,
        chunks=bodies,
        tags=[SHELVES[(copy + number) % len(SHELVES)]],
        # Some are not for who asks, so that the permission filter has something to do.
        allowed_roles=["somebody-else"] if number % 10 == 0 else [ROLE],
    )


def _copied(record: Record, copy: int, vector: Vector) -> Record:
    name = f"{record.document_id.partition('~')[0]}~{copy}"
    content = _varied(record.content, copy)
    return replace(
        record,
        id=f"{record.id}-{copy}",
        document_id=name,
        content=content,
        text=f"{record.title}\n{content}",
        tags=(SHELVES[(copy + SHELVES.index(record.tags[0])) % len(SHELVES)],),
        embed_hash=f"{record.embed_hash}-{copy}",
        record_hash=f"{record.record_hash}-{copy}",
        vector=tuple(vector.tolist()),
    )


def _varied(text: str, copy: int) -> str:
    """A copy begins elsewhere, lacks a line and has one of its own, so that lengths and scores differ."""
    if copy == 0:
        return text
    lines = text.splitlines()
    turn = copy % len(lines)
    return "\n".join([*lines[turn:], *lines[: max(0, turn - 1)], f"Ausgabe {copy} auf dem Stapel {copy % 7}."])


def _directions(seed: int, rows: int) -> Vectors:
    return _unit(np.random.default_rng(seed).standard_normal((rows, DIMENSION)))


def _nearby(vectors: Vectors, seed: int) -> Vectors:
    return _unit(vectors + NEARBY * _directions(1000 + seed, len(vectors)))


def _unit(vectors: Vectors) -> Vectors:
    found: Vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).round(DECIMALS)
    return found
