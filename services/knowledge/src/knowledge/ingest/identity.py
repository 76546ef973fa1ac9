"""The identity of a chunk and the two hashes that decide the work on it."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

from knowledge.identifiers import extract
from knowledge.ingest.chunking import Chunk
from knowledge.ingest.documents import DocumentInput
from knowledge.models import Record, join_text


def chunk_id(tenant: str, document_id: str, chunk_key: str) -> str:
    """sha256 over a length-prefixed encoding, so that no two different triples are encoded alike."""
    return _digest(tenant, document_id, chunk_key)


def build_record(
    document: DocumentInput, chunk: Chunk, *, tenant: str, source: str, text_fields: Sequence[str], fingerprint: str
) -> Record:
    """The record to store, without its vector. Metadata of the chunk wins over that of its document."""
    metadata = {**document.metadata, **chunk.metadata}
    text = join_text(text_fields, chunk.title, chunk.content, metadata)
    record = Record(
        id=chunk_id(tenant, document.id, chunk.key),
        tenant=tenant,
        document_id=document.id,
        chunk_key=chunk.key,
        ordinal=chunk.ordinal,
        source=source,
        document_title=document.title,
        title=chunk.title,
        content=chunk.content,
        text=text,
        language=document.language,
        category=document.category,
        tags=tuple(document.tags),
        metadata=metadata,
        allowed_roles=tuple(sorted(set(document.allowed_roles))),
        allowed_subjects=tuple(sorted(set(document.allowed_subjects))),
        importance=document.importance,
        identifiers=extract(text).all,
        embed_hash=embed_hash(fingerprint, text),
        record_hash="",
    )
    return replace(record, record_hash=_record_hash(record))


def embed_hash(fingerprint: str, text: str) -> str:
    """What a vector was made of, and with which model."""
    return _digest(fingerprint, text)


def _record_hash(record: Record) -> str:
    """Of everything but the vector and its model: a passage is the same in an index of another embedding model."""
    left_out = ("record_hash", "vector", "embed_hash")
    fields = {name: getattr(record, name) for name in record.__slots__ if name not in left_out}
    return hashlib.sha256(json.dumps(fields, sort_keys=True, ensure_ascii=False, default=str).encode()).hexdigest()


def _digest(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode()
        digest.update(len(raw).to_bytes(8, "big"))
        digest.update(raw)
    return digest.hexdigest()
