"""Reads everything out of an embedded index, vectors included, for another backend to take over."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path

import apsw

from knowledge.adapters.embedded_queries import unpack
from knowledge.adapters.embedded_schema import check, connect, load_strings, read_meta
from knowledge.errors import BackendError
from knowledge.models import Record

PLAIN = (
    *("id", "tenant", "document_id", "chunk_key", "ordinal", "source", "document_title"),
    *("title", "content", "text", "language", "category"),
)
"""Fields of a record that are a column as they are, in the order of the statement."""

BATCH = 200
BUSY_TIMEOUT_S = 10.0

_RECORDS = """
SELECT p.id, p.tenant, p.document_id, p.chunk_key, p.ordinal, p.source, p.document_title, p.title, p.content, p.text, p.language,
  p.category, p.tags, p.metadata, p.allowed_roles, p.allowed_subjects, p.importance, p.identifiers, p.embed_hash, p.record_hash, v.vector
FROM passages AS p LEFT JOIN vectors AS v ON v.passage = p.key ORDER BY p.tenant, p.source, p.document_id, p.ordinal, p.id
"""


class EmbeddedExport:
    """The contents of one embedded file, read in one snapshot; writers may go on meanwhile.

    Raises:
        BackendError: there is no file, or nothing was ever written to it.
        IndexMismatch: the file is not of this release.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise BackendError(f"There is no embedded index at {path}.")
        self._path = path
        with closing(self._connect()) as connection:
            check(connection, str(path), None, None)
            meta = read_meta(connection)
            if "fingerprint" not in meta:
                raise BackendError(f"Nothing was ever written to the embedded index at {path}.")
            self.fingerprint, self.dimension = str(meta["fingerprint"]), int(meta["dimension"])
            self.chunks = int(connection.execute("SELECT count(*) FROM passages").get)
            rows = connection.execute("SELECT DISTINCT tenant, source FROM passages")
            self.sources: Sequence[tuple[str, str]] = [(str(tenant), str(source)) for tenant, source in rows]

    def batches(self) -> Iterator[tuple[str, list[Record]]]:
        """(tenant, at most `BATCH` of its records), tenant by tenant."""
        with closing(self._connect()) as connection:
            for tenant, rows in groupby(map(_record, connection.execute(_RECORDS)), key=lambda record: record.tenant):
                batch: list[Record] = []
                for record in rows:
                    batch.append(record)
                    if len(batch) == BATCH:
                        yield tenant, batch
                        batch = []
                if batch:
                    yield tenant, batch

    def _connect(self) -> apsw.Connection:
        return connect(self._path, busy_timeout_s=BUSY_TIMEOUT_S, writer=False)


def _record(row: tuple[object, ...]) -> Record:
    fields = dict(zip(PLAIN, row[: len(PLAIN)], strict=True))
    tags, metadata, roles, subjects, importance, identifiers, embed_hash, record_hash, vector = row[len(PLAIN) :]
    return Record(
        **fields,  # type: ignore[arg-type]  # rows come untyped; the table declares what each column holds
        tags=load_strings(str(tags)),
        metadata=json.loads(str(metadata)),
        allowed_roles=load_strings(str(roles)),
        allowed_subjects=load_strings(str(subjects)),
        importance=float(str(importance)),
        identifiers=load_strings(str(identifiers)),
        embed_hash=str(embed_hash),
        record_hash=str(record_hash),
        vector=unpack(vector) if isinstance(vector, bytes) else (),
    )
