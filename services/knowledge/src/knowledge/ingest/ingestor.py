"""From documents to the index: embed what is new, write what changed, delete what vanished, report what was refused.

Every step may be repeated: a run that was killed and run again leaves the same index as one clean run.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from knowledge.errors import BackendError, EmbeddingError
from knowledge.ingest.chunking import chunk
from knowledge.ingest.documents import DocumentInput, Reject
from knowledge.ingest.identity import build_record
from knowledge.models import Record, StoredChunk
from knowledge.ports import DocumentStore, Embedder

EMBED_BATCH = 16
EMBED_ATTEMPTS = 4
MAX_BACKOFF_S = 5.0


@dataclass(slots=True)
class Outcome:
    """What became of one document."""

    document_id: str
    place: str
    chunks: int = 0
    embedded: int = 0
    written: int = 0
    deleted: int = 0
    rejects: list[Reject] = field(default_factory=list)

    @property
    def status(self) -> str:
        """`failed` if nothing of it is in, `partial` if something was refused, else `indexed` or `unchanged`."""
        if self.rejects:
            return "partial" if self.chunks else "failed"
        return "indexed" if self.written or self.deleted else "unchanged"


@dataclass(slots=True)
class _Work:
    """One document on its way."""

    outcome: Outcome
    records: list[Record]
    stored: dict[str, StoredChunk]

    @property
    def changed(self) -> list[Record]:
        return [one for one in self.records if one.id not in self.stored or self.stored[one.id].record_hash != one.record_hash]

    @property
    def absent(self) -> list[str]:
        """Stored chunks that the document as it came in does not hold."""
        return sorted(set(self.stored) - {one.id for one in self.records})


class Ingestor:
    """Writes documents for tenants. Holds the embedding model's identity once it is known."""

    def __init__(self, store: DocumentStore, embedder: Embedder, *, text_fields: Sequence[str], info_timeout_s: float) -> None:
        self._store = store
        self._embedder = embedder
        self._text_fields = text_fields
        self._info_timeout_s = info_timeout_s
        self._fingerprint: str | None = None

    async def ingest(
        self,
        documents: Iterable[tuple[str, DocumentInput]],
        *,
        tenant: str,
        source: str,
        on_document: Callable[[Outcome], None] = lambda _: None,
    ) -> list[Outcome]:
        """Bring the documents in, one after the other; what one of them loses to a failure stops no other.

        Raises:
            EmbeddingError: the embedding-service is not there at all (nothing was written).
            BackendError: the index cannot be opened.
        """
        fingerprint = await self._open()
        outcomes = []
        for place, document in documents:
            outcome = await self._one(document, place, tenant=tenant, source=source, fingerprint=fingerprint)
            on_document(outcome)
            outcomes.append(outcome)
        return outcomes

    async def _open(self) -> str:
        if self._fingerprint is None:
            info = await self._embedder.info(self._info_timeout_s)
            await self._store.open(fingerprint=info["fingerprint"], dimension=int(info["dimension"]))
            self._fingerprint = str(info["fingerprint"])
        return self._fingerprint

    async def _one(self, document: DocumentInput, place: str, *, tenant: str, source: str, fingerprint: str) -> Outcome:
        outcome = Outcome(document.id, place)

        def prepare() -> tuple[list[Record], list[Reject]]:
            chunks, rejects = chunk(document, place)
            kind = {"tenant": tenant, "source": source, "fingerprint": fingerprint}
            return [build_record(document, one, text_fields=self._text_fields, **kind) for one in chunks], rejects

        # Splitting a large text takes time that searches on this event loop must not wait for.
        records, outcome.rejects = await asyncio.to_thread(prepare)
        try:
            stored = {one.id: one for one in await self._store.stored_chunks(tenant, document.id)}
            work = _Work(outcome, records, stored)
            vanished = await self._vanished(work, document, tenant)
            ready = await self._with_vectors(work, tenant)
            outcome.chunks = len(records)
            if ready or vanished:
                failures = await self._store.write(tenant, ready, vanished)
                outcome.rejects.extend(Reject(place, failure.reason, document.id) for failure in failures)
                outcome.written = len(ready) - len(failures)
                outcome.chunks -= len(failures)
                outcome.deleted = len(vanished)
        except (EmbeddingError, BackendError) as error:
            kind = "embedding" if isinstance(error, EmbeddingError) else "search backend"
            outcome.rejects.append(Reject(place, f"{kind}: {error}", document.id))
            outcome.chunks = 0
        return outcome

    async def _vanished(self, work: _Work, document: DocumentInput, tenant: str) -> list[str]:
        """The chunks to delete: all that are absent, but none while a reject could explain the absence.

        Unless the document's permissions changed: what is kept would keep the old ones, and a revoked passage must not stay visible.
        """
        if not work.outcome.rejects or not work.absent:
            return work.absent
        before = await self._store.permissions(tenant, document.id)
        after = (tuple(sorted(set(document.allowed_roles))), tuple(sorted(set(document.allowed_subjects))))
        return [] if before == after else work.absent

    async def _with_vectors(self, work: _Work, tenant: str) -> list[Record]:
        """The changed records with their vectors: those the tenant has already are reused, the others embedded once."""
        changed = work.changed
        vectors = await self._store.stored_vectors(tenant, list({one.embed_hash for one in changed})) if changed else {}
        missing = list({one.embed_hash: one for one in changed if one.embed_hash not in vectors}.values())
        for start in range(0, len(missing), EMBED_BATCH):
            batch = missing[start : start + EMBED_BATCH]
            for record, vector in zip(batch, await self._embed([one.text for one in batch]), strict=True):
                vectors[record.embed_hash] = vector
        work.outcome.embedded = len(missing)
        return [replace(one, vector=vectors[one.embed_hash]) for one in changed]

    async def _embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        """Embed a batch; a late or busy service gets smaller batches, then a pause."""
        if len(texts) > 1:
            try:
                return (await self._embedder.embed(texts, "passage", self._info_timeout_s)).vectors
            except EmbeddingError:
                middle = len(texts) // 2
                return await self._embed(texts[:middle]) + await self._embed(texts[middle:])
        retrying = AsyncRetrying(
            stop=stop_after_attempt(EMBED_ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.2, max=MAX_BACKOFF_S),
            retry=retry_if_exception_type(EmbeddingError),
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                return (await self._embedder.embed(texts, "passage", self._info_timeout_s)).vectors
        raise AssertionError("unreachable: the retry loop returns or raises")
