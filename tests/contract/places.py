"""Places where a backend under contract keeps its index, and passages to put there."""

from __future__ import annotations

import hashlib
import json
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from opentelemetry.trace import NoOpTracer, Tracer

from knowledge.adapters.embedded import EmbeddedBackend
from knowledge.adapters.opensearch import OpenSearchBackend
from knowledge.lexicon import NO_LEXICON, Lexicon
from knowledge.models import Hit, Leg, LegQuery, Record, Visibility
from knowledge.ports import Backend, SearchBackend

FINGERPRINT = "sha256:toy"
DIMENSION = 16
TENANT = "acme"
TIMEOUT_S = 10.0


class EmbeddedPlace:
    """A file in a folder of the test."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "index.db"

    def connect(self, tracer: Tracer | None = None, lexicon: Lexicon = NO_LEXICON) -> Backend:
        """Another backend on the same file, not opened yet."""
        return EmbeddedBackend(self.path, tracer=tracer or NoOpTracer(), lexicon=lexicon)

    def remove(self) -> None:
        """The folder goes with the test."""


class OpenSearchPlace:
    """An alias on a real node; only indices of its own name are ever deleted."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.alias = f"kgtest-{uuid4().hex[:12]}"

    def connect(self, tracer: Tracer | None = None, lexicon: Lexicon = NO_LEXICON) -> Backend:
        """Another backend on the same alias, not opened yet."""
        return OpenSearchBackend(self.url, self.alias, tracer=tracer or NoOpTracer(), pool_size=4, lexicon=lexicon)

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Speak to the node past the backend."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/{path}", data, {"content-type": "application/json"}, method=method)  # noqa: S310
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
            return json.load(answer)

    def remove(self) -> None:
        """Delete the indices behind the alias and the template, by their full names."""
        for found in self.call("GET", f"_cat/indices/{self.alias}*?format=json"):
            assert found["index"].startswith(self.alias)
            self.call("DELETE", found["index"])
        for template in self.call("GET", "_index_template")["index_templates"]:
            if template["name"].startswith(self.alias):
                self.call("DELETE", f"_index_template/{template['name']}")


Place = EmbeddedPlace | OpenSearchPlace


def embed(text: str) -> tuple[float, ...]:
    """A toy embedding: each word adds a direction that its hash gives. Equal words, equal vectors."""
    total = np.zeros(DIMENSION, dtype=np.float32)
    for word in text.casefold().split():
        seed = int.from_bytes(hashlib.sha256(word.encode(errors="replace")).digest()[:8], "big")
        total += np.random.default_rng(seed).standard_normal(DIMENSION, dtype=np.float32)
    return tuple(map(float, total if total.any() else total + 1))


def record(name: str, text: str = "Text", **changes: Any) -> Record:
    """A passage `name` with this text, visible to the role `reader`; the only chunk of the document `doc-<name>`."""
    values: dict[str, Any] = {
        "id": name,
        "tenant": TENANT,
        "document_id": f"doc-{name}",
        "chunk_key": "0",
        "ordinal": 0,
        "source": "tests",
        "document_title": f"Document {name}",
        "title": f"Title {name}",
        "content": text,
        "text": text,
        "language": "de",
        "category": "",
        "tags": (),
        "metadata": {},
        "allowed_roles": ("reader",),
        "allowed_subjects": (),
        "importance": 1.0,
        "identifiers": (),
        "embed_hash": f"embed-{name}",
        "record_hash": f"record-{name}",
        "vector": embed(text),
    }
    return Record(**(values | changes))


def seen_by(*roles: str, subject: str = "nobody", tenant: str = TENANT) -> Visibility:
    """The permission filter of somebody with these roles."""
    return Visibility(tenant, subject, frozenset(roles))


READER = seen_by("reader")


def lexical(text: str, visibility: Visibility = READER, *, size: int = 50, **more: Any) -> LegQuery:
    """A query of the lexical leg."""
    return LegQuery(Leg.LEXICAL, visibility, size, text=text, **more)


def vector(text: str, visibility: Visibility = READER, *, size: int = 50, **more: Any) -> LegQuery:
    """A query of the vector leg, with the toy embedding of a text."""
    return LegQuery(Leg.VECTOR, visibility, size, vector=embed(text), **more)


def identifier(*identifiers: str, visibility: Visibility = READER, size: int = 50, **more: Any) -> LegQuery:
    """A query of the identifier leg."""
    return LegQuery(Leg.IDENTIFIER, visibility, size, identifiers=identifiers, **more)


@dataclass(frozen=True)
class Asked:
    """A backend with shorter questions."""

    backend: SearchBackend

    async def hits(self, query: LegQuery) -> tuple[Hit, ...]:
        """The hits of one leg, which must not be degraded."""
        (result,) = await self.backend.msearch([query], TIMEOUT_S)
        assert (result.failed, result.timed_out, result.shards_failed) == (False, False, False)
        return result.hits

    async def ids(self, query: LegQuery) -> list[str]:
        """The chunk ids of one leg, in order."""
        return [hit.passage.id for hit in await self.hits(query)]


def unit(values: Iterable[float]) -> Any:
    """A vector of length one."""
    array = np.asarray(list(values), dtype=np.float64)
    return array / np.linalg.norm(array)
