"""The statements of the embedded backend that keep documents: write, delete, look up."""

import json
from collections.abc import Iterator, Sequence

import apsw

from knowledge.adapters.analysis import analyzer_of
from knowledge.adapters.embedded_queries import PASSAGE_COLUMNS, marks, pack, passage, unpack, visible
from knowledge.adapters.embedded_schema import load_strings, read_meta, transaction
from knowledge.adapters.stored import UNKNOWN_MODEL, facets, is_unicode, refusals, sees_nothing, union
from knowledge.errors import BackendError
from knowledge.models import Record, SourceStatistics, Statistics, StoredChunk, StoredDocument, Visibility, WriteFailure

BATCH = 500
"""Values in one IN list."""

_INSERT = """
INSERT INTO passages (id, tenant, document_id, chunk_key, ordinal, source, language, analyzer, category, importance, embed_hash,
  record_hash, document_title, title, tags, identifiers, allowed_roles, allowed_subjects, metadata, content, text)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_INSERT_TEXT = "INSERT INTO text_{name} (rowid, text) VALUES (?, ?)"
_INSERT_LINK = "INSERT INTO passage_{name} VALUES (?, ?)"
_DELETE = "DELETE FROM passages WHERE tenant = ? AND id IN ({ids})"
_VECTORS = """
SELECT p.embed_hash, v.vector FROM passages AS p JOIN vectors AS v ON v.passage = p.key
WHERE p.tenant = ? AND p.embed_hash IN ({hashes}) GROUP BY p.embed_hash
"""
_STATISTICS = """
SELECT tenant, source, count(DISTINCT document_id), count(*) FROM passages
WHERE ?1 IS NULL OR tenant = ?1 GROUP BY tenant, source ORDER BY tenant, source
"""
_DOCUMENT = """
SELECT p.document_title, p.language, p.category, p.tags, p.source, p.allowed_roles, p.allowed_subjects, {columns}
FROM passages AS p WHERE p.document_id = ? AND {visible} ORDER BY p.ordinal, p.id
"""


def write(connection: apsw.Connection, tenant: str, upserts: Sequence[Record], delete_ids: Sequence[str]) -> list[WriteFailure]:
    """Write and delete in one transaction; what cannot be stored is refused and the rest goes in."""
    with transaction(connection, "IMMEDIATE"):
        meta = read_meta(connection)
        if "dimension" not in meta:
            raise BackendError(UNKNOWN_MODEL)
        refused = refusals(tenant, upserts, int(meta["dimension"]))
        accepted = {record.id: record for record in upserts if record.id not in refused}
        _delete(connection, tenant, [*accepted, *delete_ids])
        for record in accepted.values():
            if record.id not in delete_ids:
                _insert(connection, record)
    return list(refused.values())


def _delete(connection: apsw.Connection, tenant: str, ids: Sequence[str]) -> None:
    """Remove chunks of one tenant by id; triggers and foreign keys take everything that belongs to them along."""
    for some in _batches(list(filter(is_unicode, ids))):
        connection.execute(_DELETE.format(ids=marks(some)), [tenant, *some])


def _batches(values: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(values), BATCH):
        yield values[start : start + BATCH]


def _insert(connection: apsw.Connection, record: Record) -> None:
    analyzer = analyzer_of(record.language)
    connection.execute(
        _INSERT,
        (
            *(record.id, record.tenant, record.document_id, record.chunk_key, record.ordinal, record.source),
            *(record.language, analyzer, record.category, record.importance, record.embed_hash, record.record_hash),
            *(record.document_title, record.title, _dump(record.tags), _dump(record.identifiers)),
            *(_dump(record.allowed_roles), _dump(record.allowed_subjects), _dump(dict(record.metadata))),
            *(record.content, record.text),
        ),
    )
    key = connection.last_insert_rowid()
    connection.execute(_INSERT_TEXT.format(name=analyzer), (key, record.text))
    if record.vector:
        connection.execute("INSERT INTO vectors VALUES (?, ?)", (key, pack(record.vector)))
    links = {
        "roles": record.allowed_roles,
        "subjects": record.allowed_subjects,
        "tags": record.tags,
        "identifiers": record.identifiers,
        "facets": facets(record.metadata),
    }
    for name, values in links.items():
        connection.executemany(_INSERT_LINK.format(name=name), [(value, key) for value in dict.fromkeys(values)])


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def delete_document(connection: apsw.Connection, tenant: str, document_id: str) -> int:
    """Remove the chunks of a document; how many there were."""
    with transaction(connection, "IMMEDIATE"):
        connection.execute("DELETE FROM passages WHERE tenant = ? AND document_id = ?", (tenant, document_id))
        return connection.changes()


def stored_chunks(connection: apsw.Connection, tenant: str, document_ids: Sequence[str]) -> dict[str, list[StoredChunk]]:
    """The chunks of documents, each in its order."""
    statement = "SELECT id, embed_hash, record_hash FROM passages WHERE tenant = ? AND document_id = ? ORDER BY ordinal, id"
    return {name: [StoredChunk(*row) for row in connection.execute(statement, (tenant, name))] for name in document_ids}


def stored_vectors(connection: apsw.Connection, tenant: str, embed_hashes: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Vectors of the tenant by embed_hash."""
    found: dict[str, tuple[float, ...]] = {}
    for some in _batches(list(dict.fromkeys(embed_hashes))):
        rows = connection.execute(_VECTORS.format(hashes=marks(some)), [tenant, *some])
        found.update((name, unpack(blob)) for name, blob in rows)
    return found


def document(connection: apsw.Connection, document_id: str, visibility: Visibility) -> StoredDocument | None:
    """The visible chunks of a document, with the permissions of those."""
    if sees_nothing(visibility) or not is_unicode(document_id):
        return None
    clause, parameters = visible(visibility)
    statement = _DOCUMENT.format(columns=PASSAGE_COLUMNS, visible=clause)
    rows = list(connection.execute(statement, [document_id, *parameters]))
    if not rows:
        return None
    title, language, category, tags, source, _, _ = rows[0][:7]
    return StoredDocument(
        document_id,
        title,
        language,
        category,
        load_strings(tags),
        source,
        union(load_strings(row[5]) for row in rows),
        union(load_strings(row[6]) for row in rows),
        tuple(passage(row[7:]) for row in rows),
    )


def permissions(connection: apsw.Connection, tenant: str, document_id: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Who may see any chunk of a document."""
    statement = "SELECT allowed_roles, allowed_subjects FROM passages AS p WHERE tenant = ? AND document_id = ?"
    rows = list(connection.execute(statement, (tenant, document_id)))
    if not rows:
        return None
    return union(load_strings(row[0]) for row in rows), union(load_strings(row[1]) for row in rows)


def document_ids(connection: apsw.Connection, tenant: str, source: str) -> set[str]:
    """The documents of a source."""
    statement = "SELECT DISTINCT document_id FROM passages WHERE tenant = ? AND source = ?"
    return {row[0] for row in connection.execute(statement, (tenant, source))}


def statistics(connection: apsw.Connection, tenant: str | None) -> Statistics:
    """What the file holds."""
    meta = read_meta(connection)
    fingerprint, dimension = meta.get("fingerprint"), meta.get("dimension")
    rows = tuple(SourceStatistics(*row) for row in connection.execute(_STATISTICS, (tenant,)))
    return Statistics(str(fingerprint) if fingerprint else None, int(dimension) if dimension else None, rows)
