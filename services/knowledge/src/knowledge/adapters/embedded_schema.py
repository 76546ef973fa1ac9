"""The file of the embedded backend: its tables, its connections, and whether it fits what wants to use it."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import apsw
import sqlite_vec

from knowledge.adapters.analysis import ANALYSIS_VERSION, ANALYZERS, Analyzer
from knowledge.adapters.compounds import NO_COMPOUND_WORDS, CompoundWords, other_compound_words
from knowledge.adapters.stored import as_words, other_model
from knowledge.errors import IndexMismatch

SCHEMA_VERSION = 1
APPLICATION_ID = 0x4B47_4657
"""Marks the file as ours ("KGFW"), so that no foreign database is taken for an index."""

CACHE_KIB = 16_384
"""Pages that each connection keeps: SQLite's own 2 MB hold the vectors of no more than a thousand passages."""

TOKENIZER = "knowledge"
LINKS = ("roles", "subjects", "tags", "identifiers", "facets")
"""Tables of (value, passage): what a passage has several of and what filters ask for."""

_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE passages (
  key INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  tenant TEXT NOT NULL,
  document_id TEXT NOT NULL,
  chunk_key TEXT NOT NULL,
  ordinal INTEGER NOT NULL,
  source TEXT NOT NULL,
  language TEXT NOT NULL,
  analyzer TEXT NOT NULL,
  category TEXT NOT NULL,
  importance REAL NOT NULL,
  embed_hash TEXT NOT NULL,
  record_hash TEXT NOT NULL,
  document_title TEXT NOT NULL,
  title TEXT NOT NULL,
  tags TEXT NOT NULL,
  identifiers TEXT NOT NULL,
  allowed_roles TEXT NOT NULL,
  allowed_subjects TEXT NOT NULL,
  metadata TEXT NOT NULL,
  content TEXT NOT NULL,
  text TEXT NOT NULL,
  UNIQUE (tenant, id)
);
CREATE INDEX passages_by_document ON passages (tenant, document_id);
CREATE INDEX passages_by_source ON passages (tenant, source, document_id);
CREATE INDEX passages_by_embed_hash ON passages (tenant, embed_hash);
CREATE TABLE vectors (passage INTEGER PRIMARY KEY REFERENCES passages (key) ON DELETE CASCADE, vector BLOB NOT NULL);
"""
_LINK = """
CREATE TABLE passage_{name} (
  value TEXT NOT NULL,
  passage INTEGER NOT NULL REFERENCES passages (key) ON DELETE CASCADE,
  PRIMARY KEY (value, passage)
) WITHOUT ROWID;
CREATE INDEX passage_{name}_by_passage ON passage_{name} (passage);
"""
_TEXT = """
CREATE VIRTUAL TABLE text_{name} USING fts5 (text, content='', contentless_delete=1, tokenize='{tokenizer} {name}');
CREATE TRIGGER text_{name}_deleted AFTER DELETE ON passages WHEN old.analyzer = '{name}'
  BEGIN DELETE FROM text_{name} WHERE rowid = old.key; END;
"""

_Tokenize = Callable[[bytes, int, str | None], Iterator[str | tuple[str, ...]]]


def connect(path: Path, *, busy_timeout_s: float, writer: bool, compounds: CompoundWords = NO_COMPOUND_WORDS) -> apsw.Connection:
    """A connection with the vector functions and the tokenizers; a reader's cannot write.

    Args:
        path: the file; it must be there.
        busy_timeout_s: how long a statement waits for another process.
        writer: whether it may change the file.
        compounds: what German words are split into when they are written.

    Raises:
        apsw.Error: it cannot be opened; NotADBError where it is something else.
    """
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(int(busy_timeout_s * 1000))
    # Only now SQLite looks into the file.
    connection.pragma("schema_version")
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    connection.enable_load_extension(False)
    connection.register_fts5_tokenizer(TOKENIZER, partial(_tokenizer, compounds))
    connection.pragma("foreign_keys", True)
    # Every acknowledged write, a revoked permission above all, survives a loss of power: WAL alone saves it from `kill -9` only.
    connection.pragma("synchronous", "FULL")
    connection.pragma("query_only", not writer)
    connection.pragma("cache_size", -CACHE_KIB)
    return connection


def _tokenizer(compounds: CompoundWords, _connection: apsw.Connection, args: list[str]) -> _Tokenize:
    analyzer = Analyzer(args[0], compounds)

    def tokenize(utf8: bytes, flags: int, _locale: str | None) -> Iterator[str | tuple[str, ...]]:
        # A query comes as terms already, each quoted: stemming a stem again would give another term.
        if flags & apsw.FTS5_TOKENIZE_QUERY:
            yield utf8.decode()
        else:
            # Terms of one tuple share a place, and all but the first leave the passage's length as it is: as in Lucene.
            yield from analyzer.tokens(utf8.decode())

    return tokenize


def create(path: Path, compounds: CompoundWords = NO_COMPOUND_WORDS) -> None:
    """Make the file if it is absent, readable by its owner alone.

    It is made beside its place and linked there when it is whole: two processes may do so at once, neither ever sees half a file,
    and the switch to a write-ahead log, during which a second process would be turned away, is over before anybody looks.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
        whole = Path(folder) / path.name
        whole.touch(mode=0o600)
        connection = connect(whole, busy_timeout_s=0, writer=True)
        with transaction(connection, "IMMEDIATE"):
            _create_tables(connection, compounds)
        connection.pragma("journal_mode", "wal")
        connection.close()
        with suppress(FileExistsError):
            path.hardlink_to(whole)


def prepare(
    connection: apsw.Connection,
    where: str,
    fingerprint: str | None,
    dimension: int | None,
    compounds: CompoundWords = NO_COMPOUND_WORDS,
) -> None:
    """Check that the file fits; note the embedding model where it is new.

    Raises:
        IndexMismatch: a foreign file, another schema or text analysis, other compound words, or another embedding model.
    """
    check(connection, where, fingerprint, dimension, compounds)
    if fingerprint is None or dimension is None or "fingerprint" in read_meta(connection):
        return
    with transaction(connection, "IMMEDIATE"):
        connection.execute("INSERT OR IGNORE INTO meta VALUES ('fingerprint', ?), ('dimension', ?)", (fingerprint, dimension))
        # Another process may have been quicker, with another model.
        check(connection, where, fingerprint, dimension, compounds)


@contextmanager
def transaction(connection: apsw.Connection, mode: Literal["DEFERRED", "IMMEDIATE"]) -> Iterator[None]:
    """All or nothing. DEFERRED reads one snapshot; IMMEDIATE is the one writer from its beginning."""
    connection.execute(f"BEGIN {mode}")
    try:
        yield
    except BaseException:
        # A statement that ran into a full disk has rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _create_tables(connection: apsw.Connection, compounds: CompoundWords) -> None:
    connection.execute(_TABLES)
    for name in LINKS:
        connection.execute(_LINK.format(name=name))
    for name in ANALYZERS:
        connection.execute(_TEXT.format(name=name, tokenizer=TOKENIZER))
    versions = (SCHEMA_VERSION, ANALYSIS_VERSION)
    connection.execute("INSERT INTO meta VALUES ('schema', ?), ('analysis', ?)", versions)
    if compounds.digest:
        connection.execute("INSERT INTO meta VALUES ('compound_words', ?)", (compounds.digest,))
    connection.pragma("application_id", APPLICATION_ID)


def check(
    connection: apsw.Connection, where: str, fingerprint: str | None, dimension: int | None, compounds: CompoundWords | None = None
) -> None:
    """Whether an existing file fits; without `compounds` for readers that search no words. Raises IndexMismatch."""
    if connection.pragma("application_id") != APPLICATION_ID:
        raise IndexMismatch(f"{where} is the database of another program. Name another file in EMBEDDED_PATH, or move this one.")
    meta = read_meta(connection)
    found = (meta.get("schema"), meta.get("analysis"))
    if found != (SCHEMA_VERSION, ANALYSIS_VERSION):
        raise IndexMismatch(
            f"{where} was built for schema {found[0]} and text analysis {found[1]}, this release needs {SCHEMA_VERSION} and "
            f"{ANALYSIS_VERSION}. Ingest the documents again into a new file, or start the release it was built with."
        )
    if compounds is not None and meta.get("compound_words", "") != compounds.digest:
        raise IndexMismatch(other_compound_words(where, "name a new file in EMBEDDED_PATH and ingest the documents again"))
    if fingerprint is None or dimension is None or "fingerprint" not in meta:
        return
    if (meta["fingerprint"], meta["dimension"]) != (fingerprint, dimension):
        stored = as_words(str(meta["fingerprint"]), int(str(meta["dimension"])))
        raise IndexMismatch(other_model(where, stored=stored, wanted=as_words(fingerprint, dimension)))


def read_meta(connection: apsw.Connection) -> dict[str, str | int]:
    """What the file says of itself.

    `schema`, `analysis`, the digest `compound_words` where it was made with some, and `fingerprint` with `dimension` once they are known.
    """
    return dict(connection.execute("SELECT name, value FROM meta"))


def load_strings(stored: str) -> tuple[str, ...]:
    """A list of strings as it stands in a column."""
    return tuple(json.loads(stored))
