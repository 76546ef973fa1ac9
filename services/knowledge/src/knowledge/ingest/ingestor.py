"""From documents to the index: embed what is new, write what changed, delete what vanished, report what was refused.

Documents go in groups, so that many small ones share embedding calls and writes; while one group is written the next one is
embedded. Every step may be repeated: a run that was killed and run again leaves the same index as one clean run.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from knowledge.errors import BackendError, EmbeddingError
from knowledge.ingest.chunking import chunk
from knowledge.ingest.documents import DocumentInput, Reject
from knowledge.ingest.identity import build_record
from knowledge.ingest.vectors import Embedding, Vector
from knowledge.models import Record, StoredChunk
from knowledge.ports import DocumentStore, Embedder

GROUP_CHUNKS = 64
"""Chunks after which a group is full: four embedding calls and one write, about two seconds of work that a kill repeats."""

LOOKUPS = 8
"""Documents that are looked up at once: a quarter of the backend's connections, searches have the others."""


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
    """One document on its way: what it holds, what is to be written of it and what is to be deleted."""

    document: DocumentInput
    records: list[Record]
    outcome: Outcome
    changed: list[Record] = field(default_factory=list)
    vanished: list[str] = field(default_factory=list)

    def fail(self, error: BackendError | EmbeddingError) -> None:
        """Nothing of it is to be done any more."""
        kind = "embedding" if isinstance(error, EmbeddingError) else "search backend"
        self.outcome.rejects.append(Reject(self.outcome.place, f"{kind}: {error}", self.document.id))
        self.outcome.chunks = self.outcome.embedded = 0
        self.changed, self.vanished = [], []

    def done(self, refused: dict[str, str]) -> None:
        """It was written, but for the refused chunks."""
        reasons = [refused[one.id] for one in self.changed if one.id in refused]
        self.outcome.rejects.extend(Reject(self.outcome.place, reason, self.document.id) for reason in reasons)
        self.outcome.written = len(self.changed) - len(reasons)
        self.outcome.chunks -= len(reasons)
        self.outcome.deleted = len(self.vanished)


_Group = list[_Work]


class Ingestor:
    """Writes documents for tenants. Holds the embedding model's identity once it is known."""

    def __init__(self, store: DocumentStore, embedder: Embedder, *, text_fields: Sequence[str], info_timeout_s: float) -> None:
        self._store = store
        self._embedder = embedder
        self._text_fields = text_fields
        self._info_timeout_s = info_timeout_s
        self._fingerprint: str | None = None

    async def open(self) -> str:
        """Open the index for the embedding-service's model; its fingerprint.

        Raises:
            EmbeddingError: the embedding-service is not there at all.
            BackendError: the index cannot be opened.
        """
        if self._fingerprint is None:
            info = await self._embedder.info(self._info_timeout_s)
            await self._store.open(fingerprint=info["fingerprint"], dimension=int(info["dimension"]))
            self._fingerprint = str(info["fingerprint"])
        return self._fingerprint

    async def ingest(
        self,
        documents: Iterable[tuple[str, DocumentInput]],
        *,
        tenant: str,
        source: str,
        on_document: Callable[[Outcome], None] = lambda _: None,
    ) -> list[Outcome]:
        """Bring the documents in, in order; what one of them loses to a failure stops no other. They are read in another thread.

        Raises:
            EmbeddingError: the embedding-service is not there at all (nothing was written).
            BackendError: the index cannot be opened.
        """
        fingerprint = await self.open()
        embedding = Embedding(self._embedder, fingerprint=fingerprint, timeout_s=self._info_timeout_s)
        groups = self._groups(documents, tenant=tenant, source=source, fingerprint=fingerprint)
        outcomes: list[Outcome] = []
        group = await self._next(groups, embedding, tenant)
        while group:
            async with asyncio.TaskGroup() as tasks:
                writing = tasks.create_task(self._write(group, tenant))
                following = await self._next(groups, embedding, tenant, before=group, writing=writing)
            for work in group:
                on_document(work.outcome)
                outcomes.append(work.outcome)
            group = following
        return outcomes

    def _groups(self, documents: Iterable[tuple[str, DocumentInput]], *, tenant: str, source: str, fingerprint: str) -> Iterator[_Group]:
        """Documents with their records, until a group is full; no document twice in one."""
        kind = {"tenant": tenant, "source": source, "fingerprint": fingerprint}
        group: _Group = []
        size = 0
        for place, document in documents:
            chunks, rejects = chunk(document, place)
            records = [build_record(document, one, text_fields=self._text_fields, **kind) for one in chunks]
            if size >= GROUP_CHUNKS or any(work.document.id == document.id for work in group):
                yield group
                group, size = [], 0
            group.append(_Work(document, records, Outcome(document.id, place, len(records), rejects=rejects)))
            size += max(1, len(records))
        if group:
            yield group

    async def _next(
        self,
        groups: Iterator[_Group],
        embedding: Embedding,
        tenant: str,
        *,
        before: Sequence[_Work] = (),
        writing: asyncio.Task[None] | None = None,
    ) -> _Group | None:
        """The next group, ready to be written, while the one before it is being written; None after the last."""
        # Reading and splitting take time that searches on this event loop must not wait for.
        group = await asyncio.to_thread(next, groups, None)
        if group is None:
            return None
        if writing and not {work.document.id for work in before}.isdisjoint(work.document.id for work in group):
            await writing  # what is stored of a document is known only then
        limit = asyncio.Semaphore(LOOKUPS)
        await asyncio.gather(*(self._look_up(work, tenant, limit) for work in group))
        await self._add_vectors(group, embedding, tenant, {one.embed_hash: one.vector for work in before for one in work.changed})
        return group

    async def _look_up(self, work: _Work, tenant: str, limit: asyncio.Semaphore) -> None:
        """Compare with what is stored."""
        async with limit:
            try:
                stored = {one.id: one for one in await self._store.stored_chunks(tenant, work.document.id)}
                work.vanished = await self._vanished(work, stored, tenant)
                work.changed = [one for one in work.records if one.id not in stored or _differs(stored[one.id], one)]
            except BackendError as error:
                work.fail(error)

    async def _vanished(self, work: _Work, stored: dict[str, StoredChunk], tenant: str) -> list[str]:
        """The chunks to delete: all that are absent, but none while a reject could explain the absence.

        Unless the document's permissions changed: what is kept would keep the old ones, and a revoked passage must not stay visible.
        """
        absent = sorted(set(stored) - {one.id for one in work.records})
        if not work.outcome.rejects or not absent:
            return absent
        before = await self._store.permissions(tenant, work.document.id)
        after = (tuple(sorted(set(work.document.allowed_roles))), tuple(sorted(set(work.document.allowed_subjects))))
        return [] if before == after else absent

    async def _add_vectors(self, group: _Group, embedding: Embedding, tenant: str, known: dict[str, Vector]) -> None:
        """Give the changed records their vectors: those that the tenant has are reused, the others are embedded once."""
        wanted = {one.embed_hash: one.text for work in group for one in work.changed}
        vectors: dict[str, Vector | EmbeddingError] = {name: known[name] for name in wanted if name in known}
        try:
            unknown = [name for name in wanted if name not in vectors]
            vectors.update(await self._store.stored_vectors(tenant, unknown) if unknown else {})
        except BackendError as error:
            if len(group) == 1:
                group[0].fail(error)
            else:
                for work in group:
                    await self._add_vectors([work], embedding, tenant, known)
            return
        missing = [name for name in wanted if name not in vectors]
        vectors.update(zip(missing, await embedding.embed([wanted[name] for name in missing]), strict=True))
        embedded = set(missing)
        for work in group:
            work.outcome.embedded = len(embedded.intersection(one.embed_hash for one in work.changed))
            embedded.difference_update(one.embed_hash for one in work.changed)
            _attach(work, vectors)

    async def _write(self, group: _Group, tenant: str) -> None:
        """One write for the group; where it fails, one for each document, so that those that can go in do."""
        busy = [work for work in group if work.changed or work.vanished]
        if not busy:
            return
        upserts = [one for work in busy for one in work.changed]
        try:
            failures = await self._store.write(tenant, upserts, [name for work in busy for name in work.vanished])
        except BackendError as error:
            if len(busy) == 1:
                busy[0].fail(error)
            else:
                for work in busy:
                    await self._write([work], tenant)
            return
        for work in busy:
            work.done({failure.id: failure.reason for failure in failures})


def _differs(stored: StoredChunk, record: Record) -> bool:
    return (stored.record_hash, stored.embed_hash) != (record.record_hash, record.embed_hash)


def _attach(work: _Work, vectors: dict[str, Vector | EmbeddingError]) -> None:
    """The vectors to the records; a document of which one text has none fails as a whole, and what it had before stays."""
    ready: list[Record] = []
    for one in work.changed:
        vector = vectors[one.embed_hash]
        if isinstance(vector, EmbeddingError):
            work.fail(vector)
            return
        ready.append(replace(one, vector=vector))
    work.changed = ready
