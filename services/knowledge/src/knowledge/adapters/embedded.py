"""The embedded search backend: one SQLite file with FTS5 for words and sqlite-vec for exact cosine search. No server.

Several processes may use one file at once (WAL): a gateway searches while a command ingests. Readers see one snapshot a search.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TypeVar

import apsw
from opentelemetry.trace import Tracer

from knowledge.adapters import embedded_documents as documents
from knowledge.adapters.analysis import ANALYZERS, Analyzer, compound_words
from knowledge.adapters.embedded_examination import examine
from knowledge.adapters.embedded_queries import find
from knowledge.adapters.embedded_schema import check, connect, create, prepare, read_meta, transaction
from knowledge.adapters.search_span import search_span
from knowledge.adapters.synonyms import Synonyms
from knowledge.errors import BackendError, IndexMismatch
from knowledge.lexicon import NO_LEXICON, Lexicon, Synonym
from knowledge.models import Finding, LegQuery, LegResult, Record, Statistics, StoredChunk, StoredDocument, Visibility, WriteFailure

T = TypeVar("T")

READY_TIMEOUT_S = 2.0
LATEST_LEG = 0.9
"""The part of a search's time after which a running leg is interrupted, so that the legs before it are still answered in time."""

PROGRESS_STEPS = 2000
"""Instructions of SQLite's machine between two looks at the clock: well below a millisecond."""


@dataclass(slots=True)
class _Job:
    """A search in a thread, which ends early when its time is gone or its caller is."""

    ends_at: float
    abandoned: threading.Event = field(default_factory=threading.Event)

    def over(self) -> bool:
        """Whether nobody waits any more."""
        return self.abandoned.is_set() or monotonic() >= self.ends_at


class _Reader:
    """A read connection with its analyzers, for one thread."""

    def __init__(self, path: Path, busy_timeout_s: float, synonyms: Sequence[Synonym]) -> None:
        self.connection = connect(path, busy_timeout_s=busy_timeout_s, writer=False)
        self._analyzers = {name: Analyzer(name) for name in ANALYZERS}
        self._synonyms = {name: Synonyms(synonyms, analyzer) for name, analyzer in self._analyzers.items()}

    def search(self, queries: Sequence[LegQuery], job: _Job) -> list[LegResult]:
        """All legs on one snapshot."""
        with transaction(self.connection, "DEFERRED"):
            return [self._leg(query, job) for query in queries]

    def _leg(self, query: LegQuery, job: _Job) -> LegResult:
        if job.over():
            return LegResult(failed=True, timed_out=True)
        self.connection.set_progress_handler(job.over, PROGRESS_STEPS)
        try:
            if query.fingerprint and query.fingerprint != read_meta(self.connection).get("fingerprint", query.fingerprint):
                return LegResult(failed=True)
            return LegResult(find(self.connection, self._analyzers, self._synonyms, query))
        except apsw.InterruptError:
            return LegResult(failed=True, timed_out=True)
        except apsw.Error:
            return LegResult(failed=True)
        finally:
            self.connection.set_progress_handler(None)


class EmbeddedBackend:
    """`knowledge.ports.Backend` on one file. `open` comes before everything else.

    Args:
        path: the file; it and its folder are made if absent, readable by their owner alone.
        tracer: makes one span a search.
        threads: searches that run at once.
        busy_timeout_s: how long a write waits for the writer of another process.
        lexicon: parts of German compounds, which decide what is indexed, and synonyms, which decide what is searched.
    """

    def __init__(
        self, path: Path, *, tracer: Tracer, threads: int = 4, busy_timeout_s: float = 10.0, lexicon: Lexicon = NO_LEXICON
    ) -> None:
        self._path = path
        self._compounds = compound_words(lexicon.compound_words)
        self._synonyms = lexicon.synonyms
        self._tracer = tracer
        self._busy_timeout_s = busy_timeout_s
        self._where = f"The index {path}"
        self._readers = ThreadPoolExecutor(threads, thread_name_prefix="embedded-search")
        self._writers = ThreadPoolExecutor(1, thread_name_prefix="embedded-write")
        self._of_thread = threading.local()
        self._connections: list[apsw.Connection] = []
        self._writer: apsw.Connection | None = None
        self._closed = False
        self._expected: tuple[str | None, int | None] = (None, None)

    async def msearch(self, queries: Sequence[LegQuery], timeout_s: float) -> list[LegResult]:
        """All legs in one thread on one snapshot. A leg that the time-out interrupts has failed; those before it stay."""
        job = _Job(monotonic() + timeout_s * LATEST_LEG)
        with search_span(self._tracer, "sqlite", self._path.name, len(queries)) as span:
            try:
                async with asyncio.timeout(timeout_s):
                    results = await self._read(lambda reader: reader.search(queries, job))
            except TimeoutError as error:
                raise BackendError("The search backend was late.") from error
            finally:
                job.abandoned.set()
            span.legs(results)
            return results

    async def ready(self) -> bool:
        """Whether the file is there, answers and fits."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await self._read(lambda reader: check(reader.connection, self._where, *self._expected, self._compounds))
        except (BackendError, TimeoutError):
            return False
        return True

    async def examine(self) -> list[Finding]:
        """The file: whole, how large, how full."""
        return await self._read(lambda reader: examine(reader.connection, self._path))

    async def aclose(self) -> None:
        """Wait for what runs, then close the file."""
        self._closed = True
        for pool in (self._readers, self._writers):
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._writer = None

    async def open(self, *, fingerprint: str | None, dimension: int | None) -> None:
        """Make the file or check it."""

        def prepared() -> None:
            create(self._path, self._compounds)
            prepare(self._writing(), self._where, fingerprint, dimension, self._compounds)

        await self._run(self._writers, prepared)
        if fingerprint is not None:
            self._expected = (fingerprint, dimension)

    async def stored_chunks(self, tenant: str, document_ids: Sequence[str]) -> dict[str, list[StoredChunk]]:
        """The chunks of documents."""
        return await self._read(lambda reader: documents.stored_chunks(reader.connection, tenant, document_ids))

    async def stored_vectors(self, tenant: str, embed_hashes: Sequence[str]) -> dict[str, tuple[float, ...]]:
        """Vectors of the tenant by embed_hash."""
        return await self._read(lambda reader: documents.stored_vectors(reader.connection, tenant, embed_hashes))

    async def write(self, tenant: str, upserts: Sequence[Record], delete_ids: Sequence[str]) -> list[WriteFailure]:
        """One transaction. What cannot be stored is refused; anything else that goes wrong leaves everything as it was."""
        return await self._write(lambda connection: documents.write(connection, tenant, upserts, delete_ids))

    async def document(self, document_id: str, visibility: Visibility) -> StoredDocument | None:
        """The visible chunks of a document."""
        return await self._read(lambda reader: documents.document(reader.connection, document_id, visibility))

    async def permissions(self, tenant: str, document_id: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Who may see a document."""
        return await self._read(lambda reader: documents.permissions(reader.connection, tenant, document_id))

    async def delete_document(self, tenant: str, document_id: str) -> int:
        """Remove a document in one transaction."""
        return await self._write(lambda connection: documents.delete_document(connection, tenant, document_id))

    async def document_ids(self, tenant: str, source: str) -> set[str]:
        """The documents of a source."""
        return await self._read(lambda reader: documents.document_ids(reader.connection, tenant, source))

    async def statistics(self, tenant: str | None) -> Statistics:
        """What the file holds."""
        if not self._path.exists():
            return Statistics(None, None, ())

        def counted(reader: _Reader) -> Statistics:
            with transaction(reader.connection, "DEFERRED"):
                check(reader.connection, self._where, None, None)
                return documents.statistics(reader.connection, tenant)

        return await self._read(counted)

    async def _read(self, action: Callable[[_Reader], T]) -> T:
        return await self._run(self._readers, lambda: action(self._reader()))

    async def _write(self, action: Callable[[apsw.Connection], T]) -> T:
        return await self._run(self._writers, lambda: action(self._writing()))

    async def _run(self, pool: ThreadPoolExecutor, action: Callable[[], T]) -> T:
        if self._closed:
            raise BackendError(f"{self._where} is closed.")
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, action)
        except apsw.BusyError as error:
            raise BackendError(f"{self._where} is being written by another process; try again.") from error
        except apsw.NotADBError as error:
            raise IndexMismatch(f"{self._where} is no database. Name another file in EMBEDDED_PATH, or move this one.") from error
        except (apsw.Error, OSError) as error:
            raise BackendError(f"{self._where} cannot be used: {type(error).__name__}.") from error

    def _reader(self) -> _Reader:
        reader: _Reader | None = getattr(self._of_thread, "reader", None)
        if reader is None:
            reader = _Reader(self._path, self._busy_timeout_s, self._synonyms)
            self._of_thread.reader = reader
            self._connections.append(reader.connection)
        return reader

    def _writing(self) -> apsw.Connection:
        if self._writer is None:
            connection = connect(self._path, busy_timeout_s=self._busy_timeout_s, writer=True, compounds=self._compounds)
            self._connections.append(connection)
            self._writer = connection
        return self._writer
