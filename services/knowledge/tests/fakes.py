"""Fakes of the gateway's ports: a clock, a backend in memory, an embedder of word counts, a reranker that follows a script."""

import asyncio
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import regex

from knowledge.errors import BackendError, EmbeddingError, FallbackReason, IndexMismatch, RerankError
from knowledge.identifiers import extract
from knowledge.models import (
    Embeddings,
    Finding,
    Hit,
    Leg,
    LegQuery,
    LegResult,
    Passage,
    Record,
    Reranking,
    ScoreKind,
    StoredChunk,
    StoredDocument,
    Verdict,
    Visibility,
    WriteFailure,
)
from knowledge.rerank import PROBE_QUERY

DIMENSION = 16
FINGERPRINT = "fake-embedder/1"
OWN_FIELDS = ("language", "category", "tags")


class FakeClock:
    """A clock that a test moves by hand."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Seconds."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


def words(text: str) -> list[str]:
    """The words of a text, lower-case."""
    return regex.findall(r"[\p{L}\p{N}]+", text.casefold())


def embedding_of(text: str) -> tuple[float, ...]:
    """A vector that depends on the words of a text and on nothing else; never zero."""
    vector = [0.01] * DIMENSION
    for word in words(text):
        vector[hashlib.sha256(word.encode()).digest()[0] % DIMENSION] += 1.0
    return tuple(vector)


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Cosine similarity."""
    norms = math.sqrt(math.fsum(x * x for x in left)) * math.sqrt(math.fsum(x * x for x in right))
    return math.fsum(x * y for x, y in zip(left, right, strict=True)) / norms


def record(chunk: str, text: str = "wasser", **fields: Any) -> Record:
    """A stored chunk with defaults for all that a test does not name."""
    identifiers = extract(text).all
    base = Record(
        id=chunk,
        tenant="acme",
        document_id=f"doc-{chunk}",
        chunk_key="#0",
        ordinal=0,
        source="files",
        document_title="",
        title="",
        content=text,
        text=text,
        language="de",
        category="",
        tags=(),
        metadata={},
        allowed_roles=("reader",),
        allowed_subjects=(),
        importance=1.0,
        identifiers=identifiers,
        embed_hash=text,
        record_hash=text,
        vector=embedding_of(text),
    )
    return replace(base, **fields)


class FakeEmbedder:
    """Counts its calls. `failures` are raised, one a call, before it works again; `down` and `hang` until they are taken back."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[str, ...], str, float]] = []
        self.failures: list[EmbeddingError] = []
        self.largest_batch: int | None = None
        self.down = False
        self.hang = False
        self.facts: dict[str, Any] = {"fingerprint": FINGERPRINT, "dimension": DIMENSION, "model": "fake", "deadline_s": 4.0}
        self.closed = False

    @property
    def texts(self) -> list[str]:
        """All texts that were embedded, in order."""
        return [text for texts, _, _ in self.calls for text in texts]

    async def embed(self, texts: Sequence[str], kind: Literal["query", "passage"], timeout_s: float) -> Embeddings:
        """Vectors of the words."""
        if self.hang:
            await asyncio.Event().wait()
        if self.down:
            raise EmbeddingError("transport")
        if self.failures:
            raise self.failures.pop(0)
        if self.largest_batch is not None and len(texts) > self.largest_batch:
            raise EmbeddingError("timeout")
        self.calls.append((tuple(texts), kind, timeout_s))
        return Embeddings(tuple(map(embedding_of, texts)), "fake", FINGERPRINT)

    async def info(self, timeout_s: float) -> dict[str, Any]:
        """What the service says of itself."""
        if self.down:
            raise EmbeddingError("transport")
        return self.facts

    async def aclose(self) -> None:
        """Nothing to release."""
        self.closed = True


class FakeBackend:
    """Keeps records in memory and applies visibility and filters inside every leg, as the port demands."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.records = {one.id: one for one in records}
        self.asked: list[list[LegQuery]] = []
        self.writes: list[tuple[list[str], list[str]]] = []
        self.down = False
        self.failed: set[Leg] = set()
        self.timed_out: set[Leg] = set()
        self.shards_failed: set[Leg] = set()
        self.failed_scope: tuple[str, ...] | None = None
        """Values of a first filter whose bodies fail."""
        self.refused: set[str] = set()
        """Contents that a write refuses."""
        self.mismatch = ""
        self.hold: asyncio.Event | None = None
        self.searching = asyncio.Event()
        self.cancelled = False
        self.closed = False

    async def msearch(self, queries: Sequence[LegQuery], timeout_s: float) -> list[LegResult]:
        """All legs over what is visible."""
        self.asked.append(list(queries))
        self.searching.set()
        if self.hold is not None:
            try:
                await self.hold.wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
        if self.down:
            raise BackendError("down")
        return [self._leg(query) for query in queries]

    def _leg(self, query: LegQuery) -> LegResult:
        failed_here = self.failed_scope is not None and bool(query.filters) and query.filters[-1][1] == self.failed_scope
        if query.leg in self.failed or failed_here:
            return LegResult(failed=True, timed_out=query.leg in self.timed_out)
        seen = [one for one in self.records.values() if sees(query.visibility, one) and matches(one, query.filters)]
        scored = [(score, one) for one in seen if (score := _score(query, one)) is not None]
        scored.sort(key=lambda pair: (-pair[0], pair[1].id))
        hits = tuple(Hit(passage_of(one), score) for score, one in scored[: query.size])
        return LegResult(hits, timed_out=query.leg in self.timed_out, shards_failed=query.leg in self.shards_failed)

    async def ready(self) -> bool:
        """Whether it answers."""
        return not self.down

    async def examine(self) -> list[Finding]:
        """One line that says what this is."""
        return [Finding(Verdict.OK, "version", "a fake")]

    async def aclose(self) -> None:
        """Nothing to release."""
        self.closed = True

    async def open(self, *, fingerprint: str | None, dimension: int | None) -> None:
        """Check that nothing stands against it."""
        if self.mismatch:
            raise IndexMismatch(self.mismatch)
        if self.down:
            raise BackendError("down")

    async def stored_chunks(self, tenant: str, document_ids: Sequence[str]) -> dict[str, list[StoredChunk]]:
        """The chunks of documents."""
        return {
            name: [StoredChunk(one.id, one.embed_hash, one.record_hash) for one in self._document(tenant, name)] for name in document_ids
        }

    async def stored_vectors(self, tenant: str, embed_hashes: Sequence[str]) -> dict[str, tuple[float, ...]]:
        """Vectors of the tenant."""
        own = {one.embed_hash: one.vector for one in self.records.values() if one.tenant == tenant}
        return {name: own[name] for name in embed_hashes if name in own}

    async def write(self, tenant: str, upserts: Sequence[Record], delete_ids: Sequence[str]) -> list[WriteFailure]:
        """Write what can be stored; searchable at once."""
        if self.down:
            raise BackendError("down")
        self.writes.append(([one.id for one in upserts], list(delete_ids)))
        failures = [WriteFailure(one.id, reason) for one in upserts if (reason := self._refusal(one))]
        refused = {failure.id for failure in failures}
        for chunk in delete_ids:
            self.records.pop(chunk, None)
        self.records.update((one.id, one) for one in upserts if one.id not in refused)
        return failures

    def _refusal(self, one: Record) -> str:
        if one.content in self.refused:
            return "refused by the test"
        try:
            json.dumps(one.metadata, allow_nan=False)
        except (ValueError, TypeError):
            return "metadata: is not valid JSON"
        return ""

    async def document(self, document_id: str, visibility: Visibility) -> StoredDocument | None:
        """The visible chunks of a document."""
        found = [one for one in self._document(visibility.tenant, document_id) if sees(visibility, one)]
        if not found:
            return None
        first = found[0]
        return StoredDocument(
            document_id,
            first.document_title,
            first.language,
            first.category,
            first.tags,
            first.source,
            first.allowed_roles,
            first.allowed_subjects,
            tuple(map(passage_of, found)),
        )

    async def permissions(self, tenant: str, document_id: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Who may see any chunk of a document."""
        found = self._document(tenant, document_id)
        return (found[0].allowed_roles, found[0].allowed_subjects) if found else None

    async def delete_document(self, tenant: str, document_id: str) -> int:
        """Remove a document."""
        found = self._document(tenant, document_id)
        for one in found:
            del self.records[one.id]
        return len(found)

    async def document_ids(self, tenant: str, source: str) -> set[str]:
        """The documents of a source."""
        return {one.document_id for one in self.records.values() if (one.tenant, one.source) == (tenant, source)}

    def _document(self, tenant: str, document_id: str) -> list[Record]:
        found = [one for one in self.records.values() if (one.tenant, one.document_id) == (tenant, document_id)]
        return sorted(found, key=lambda one: one.ordinal)


def sees(visibility: Visibility, one: Record) -> bool:
    """The permission rule, written down a second time, for the tests."""
    if one.tenant != visibility.tenant:
        return False
    return any(role in visibility.roles for role in one.allowed_roles) or visibility.subject in one.allowed_subjects


def matches(one: Record, filters: Sequence[tuple[str, Sequence[str]]]) -> bool:
    """Whether all body filters hold."""
    for name, accepted in filters:
        value = getattr(one, name) if name in OWN_FIELDS else one.metadata.get(name)
        values = value if isinstance(value, list | tuple) else [value]
        if not any(item in accepted for item in values):
            return False
    return True


def passage_of(one: Record) -> Passage:
    """A record as callers see it."""
    shown = {**one.metadata, **({"category": one.category} if one.category else {}), **({"tags": list(one.tags)} if one.tags else {})}
    return Passage(one.id, one.document_id, one.title, one.content, one.language, shown, one.importance, one.identifiers)


def _score(query: LegQuery, one: Record) -> float | None:
    if query.leg is Leg.LEXICAL:
        found = sum(words(one.text).count(word) for word in set(words(query.text)))
        return float(found) if found else None
    if query.leg is Leg.VECTOR:
        return cosine(query.vector, one.vector) if one.vector else None
    found = len(set(query.identifiers).intersection(one.identifiers))
    return float(found) if found else None


Script = Callable[[str, Sequence[str]], Reranking]


def overlap_score(query: str, document: str) -> float:
    """A score between 0 and 1 that depends on both texts, with many ties."""
    seed = hashlib.sha256(f"{query}\x00{document}".encode()).digest()[0]
    return (seed % 8) / 8


def reranking(scores: Mapping[int, Any] | Sequence[Any], unscored: Sequence[tuple[Any, Any]] = ()) -> Reranking:
    """An answer with these scores, best first as services send them."""
    pairs = list(scores.items()) if isinstance(scores, Mapping) else list(enumerate(scores))
    return Reranking(pairs, "fake-reranker", ScoreKind.PROBABILITY, unscored)


def score_all(query: str, documents: Sequence[str]) -> Reranking:
    """The script of a provider that is well."""
    return reranking([overlap_score(query, document) for document in documents])


def failing(reason: FallbackReason, status: int | None = None) -> Script:
    """The script of a provider that fails."""

    def script(_: str, __: Sequence[str]) -> Reranking:
        raise RerankError(reason, status=status)

    return script


class FakeReranker:
    """Answers with `script`; `probe_script` answers the gateway's own probes, which are no searches and are kept apart."""

    def __init__(self, script: Script = score_all, *, provider: str = "fake", answer_margin_s: float = 0.15) -> None:
        self.script = script
        self.probe_script: Script = score_all
        self.provider = provider
        self.model = "fake-reranker"
        self.answer_margin_s = answer_margin_s
        self.calls: list[tuple[str, list[str], float]] = []
        self.probes = 0
        self.hold: asyncio.Event | None = None
        self.asked = asyncio.Event()
        self.cancelled = False
        self.facts: dict[str, Any] | None = None
        self.closed = False

    async def rerank(self, query: str, documents: Sequence[str], wait_s: float) -> Reranking:
        """Follow the script."""
        if query == PROBE_QUERY:
            self.probes += 1
            return self.probe_script(query, documents)
        self.calls.append((query, list(documents), wait_s))
        self.asked.set()
        if self.hold is not None:
            try:
                await self.hold.wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
        return self.script(query, documents)

    async def info(self, timeout_s: float) -> dict[str, Any] | None:
        """What the provider declares."""
        return self.facts

    async def aclose(self) -> None:
        """Nothing to release."""
        self.closed = True
