"""From documents to the index: embed what is new, write what changed, delete what vanished, report what was refused.

Documents go in groups, so that many small ones share look-ups, embedding calls and writes; while some are written the next ones are
embedded. Every step may be repeated: a run that was killed and run again leaves the same index as one clean run.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from knowledge.errors import BackendError, EmbeddingError
from knowledge.ingest.chunking import chunk
from knowledge.ingest.documents import DocumentInput, Reject
from knowledge.ingest.identity import build_record
from knowledge.ingest.vectors import Embedding, Vector
from knowledge.models import Record, StoredChunk
from knowledge.ports import DocumentStore, Embedder
from knowledge.telemetry import INGEST_OUTCOME, Instruments

GROUP_CHUNKS = 64
"""Chunks after which a group is full: one look-up and four embedding calls."""

WRITE_CHUNKS = 512
"""Chunks that may wait for the write before them: a backend writes many at once more quickly than few."""


Status = Literal["indexed", "unchanged", "partial", "failed"]


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
    def status(self) -> Status:
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


OUTAGE = 4
"""Documents that fail one after the other before the rest of a write is given up: then it is not the documents."""

WRITE_EVERY_S = 1.0
"""A write begins no sooner after the one before it, unless it is full: each ends with a refresh, which costs as much as many chunks."""

_Group = list[_Work]


class _Written:
    """Writes what is ready, in order: one write at a time, and as much as has become ready meanwhile in the next.

    While embedding is the slow part that is a group at a time; where it is not, writes grow up to `WRITE_CHUNKS`, a second's worth at most.
    """

    def __init__(self, tasks: asyncio.TaskGroup, write: Callable[[_Group], Coroutine[Any, Any, None]]) -> None:
        self._tasks = tasks
        self._write = write
        self._task: asyncio.Task[None] | None = None
        self._busy: _Group = []
        self._ready: _Group = []
        self._loop = asyncio.get_running_loop()
        self._begun_at = self._loop.time()

    @property
    def waiting_for(self) -> set[str]:
        """The documents that are not written yet."""
        return {work.document.id for work in (*self._busy, *self._ready)}

    @property
    def vectors(self) -> dict[str, Vector]:
        """The vectors that are not stored yet, by embed_hash."""
        return {one.embed_hash: one.vector for work in (*self._busy, *self._ready) for one in work.changed}

    async def soon(self, group: _Group) -> None:
        """Write it with the next write; wait only if too much is waiting already."""
        self._ready += group
        is_full = sum(len(work.changed) for work in self._ready) >= WRITE_CHUNKS
        is_free = self._task is None or self._task.done()
        if is_full or (is_free and self._loop.time() >= self._begun_at + WRITE_EVERY_S):
            await self._begin()

    async def all(self) -> None:
        """Everything is written on return."""
        await self._settle()
        await self._begin()
        await self._settle()

    async def _begin(self) -> None:
        await self._settle()
        self._begun_at = self._loop.time()
        self._busy, self._ready = self._ready, []
        if self._busy:
            self._task = self._tasks.create_task(self._write(self._busy))

    async def _settle(self) -> None:
        if self._task is not None:
            await self._task
        self._task, self._busy = None, []


class Ingestor:
    """Writes documents for tenants. Holds the embedding model's identity once it is known."""

    def __init__(
        self,
        store: DocumentStore,
        embedder: Embedder,
        *,
        text_fields: Sequence[str],
        info_timeout_s: float,
        metrics: Instruments | None = None,
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._text_fields = text_fields
        self._info_timeout_s = info_timeout_s
        self._metrics = metrics
        self._fingerprint: str | None = None

    def count(self, outcomes: Iterable[Outcome]) -> None:
        """Count what became of items, those among them that were refused before they got here."""
        if self._metrics is not None:
            for outcome in outcomes:
                self._metrics.ingest_items.add(1, {INGEST_OUTCOME: outcome.status})

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

        async def write(work: list[_Work]) -> None:
            await self._write(work, tenant)
            for one in work:
                on_document(one.outcome)
                outcomes.append(one.outcome)

        async with asyncio.TaskGroup() as tasks:
            written = _Written(tasks, write)
            # Reading and splitting take time that searches on this event loop must not wait for, nor the look-ups of the group before.
            reading = tasks.create_task(asyncio.to_thread(next, groups, None))
            while group := await reading:
                reading = tasks.create_task(asyncio.to_thread(next, groups, None))
                if not written.waiting_for.isdisjoint(work.document.id for work in group):
                    await written.all()  # what is stored of a document is known only then
                await self._look_up(group, tenant)
                await self._add_vectors(group, embedding, tenant, written.vectors)
                await written.soon(group)
            await written.all()
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

    async def _look_up(self, group: _Group, tenant: str) -> None:
        """Compare with what is stored, in one request; where that fails, in one for each document."""
        try:
            stored = await self._store.stored_chunks(tenant, [work.document.id for work in group])
            for work in group:
                there = {one.id: one for one in stored[work.document.id]}
                work.vanished = await self._vanished(work, there, tenant)
                work.changed = [one for one in work.records if one.id not in there or _differs(there[one.id], one)]
        except BackendError as error:
            if len(group) == 1:
                group[0].fail(error)
            else:
                for work in group:
                    await self._look_up([work], tenant)

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

    async def _write(self, group: _Group, tenant: str) -> BackendError | None:
        """One write for all of it; where that fails, one for each half, so that what can go in does. The error, if nothing went in."""
        busy = [work for work in group if work.changed or work.vanished]
        if not busy:
            return None
        upserts = [one for work in busy for one in work.changed]
        try:
            failures = await self._store.write(tenant, upserts, [name for work in busy for name in work.vanished])
        except BackendError as error:
            if len(busy) > 1:
                return await self._write_halves(busy, tenant)
            busy[0].fail(error)
            return error
        for work in busy:
            work.done({failure.id: failure.reason for failure in failures})
        return None

    async def _write_halves(self, busy: _Group, tenant: str) -> BackendError | None:
        first, second = busy[: len(busy) // 2], busy[len(busy) // 2 :]
        failed = await self._write(first, tenant)
        if failed is not None and len(first) >= OUTAGE:
            for work in second:
                work.fail(failed)
            return failed
        return await self._write(second, tenant) and failed


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
