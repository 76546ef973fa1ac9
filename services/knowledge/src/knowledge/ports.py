"""The seams to the outside: the search backend, the embedder, the reranker. Adapters implement them, `app` wires them."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Literal, Protocol

from knowledge.models import (
    Difference,
    Embeddings,
    Finding,
    IndexFacts,
    LegQuery,
    LegResult,
    Record,
    Reranking,
    Statistics,
    StoredChunk,
    StoredDocument,
    Visibility,
    WriteFailure,
)


class SearchBackend(Protocol):
    """Finds passages. Fusion, floors and everything after are the gateway's, so that all backends rank by the same rules."""

    async def msearch(self, queries: Sequence[LegQuery], timeout_s: float) -> list[LegResult]:
        """Run all legs in one round trip; one result a query, in order.

        Hits come ordered by (score desc, chunk id asc), at most `size` of them. Every leg applies the visibility and the
        filters while it searches, never afterwards. A vector hit's score is the raw cosine.

        Raises:
            BackendError: nothing could be asked at all (connection, overall time-out).
        """
        ...

    async def ready(self) -> bool:
        """Whether the backend answers and its index is the expected one; bounded to about two seconds, raises nothing."""
        ...

    async def examine(self) -> list[Finding]:
        """What a platform engineer would look at: version, index, room, text analysis. Opened before; raises BackendError."""
        ...

    async def aclose(self) -> None:
        """Release connections and files."""
        ...


class DocumentStore(Protocol):
    """Keeps chunks. What a write acknowledges is searchable."""

    async def open(self, *, fingerprint: str | None, dimension: int | None) -> None:
        """Create the index if it is absent, else check that it fits. Idempotent, safe with several processes.

        `fingerprint` and `dimension` of the embedding model; None where they are not known yet: an absent index is then
        created at the first write that knows them, and searches of an absent index find nothing.

        Raises:
            IndexMismatch: the index holds vectors of another model or dimension, or a mapping that does not fit.
            BackendError: the backend cannot be reached.
        """
        ...

    async def stored_chunks(self, tenant: str, document_ids: Sequence[str]) -> dict[str, list[StoredChunk]]:
        """The chunks of each of these documents, whoever may see them; none where a document is absent."""
        ...

    async def stored_vectors(self, tenant: str, embed_hashes: Sequence[str]) -> dict[str, tuple[float, ...]]:
        """Vectors that the tenant already has, by embed_hash: nothing is embedded twice."""
        ...

    async def write(self, tenant: str, upserts: Sequence[Record], delete_ids: Sequence[str]) -> list[WriteFailure]:
        """Write and delete chunks of one tenant; searchable on return. Other chunks go in even if one is refused.

        A record replaces what was stored under its id, its vector included: one without a vector takes the stored one away.

        Raises:
            BackendError: nothing, or not all of it, is known to be written; writing again is safe.
        """
        ...

    async def document(self, document_id: str, visibility: Visibility) -> StoredDocument | None:
        """The chunks of a document that are visible; None if there are none, absent or hidden."""
        ...

    async def permissions(self, tenant: str, document_id: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """(allowed_roles, allowed_subjects) of a stored document, for the audit; None if it is absent."""
        ...

    async def delete_document(self, tenant: str, document_id: str) -> int:
        """Remove a document; unsearchable on return. Returns the number of chunks removed."""
        ...

    async def document_ids(self, tenant: str, source: str) -> set[str]:
        """The documents that a source has put in."""
        ...

    async def statistics(self, tenant: str | None) -> Statistics:
        """What is there, of one tenant or of all, by tenant and source in order; for the operator. Needs no `open`, creates nothing.

        Raises:
            BackendError: the backend cannot be reached, or what is there is no index of this release.
        """
        ...


class Backend(SearchBackend, DocumentStore, Protocol):
    """Both halves in one adapter."""


class Embedder(Protocol):
    """Turns texts into vectors."""

    async def embed(self, texts: Sequence[str], kind: Literal["query", "passage"], timeout_s: float) -> Embeddings:
        """Embed all texts in one call within `timeout_s` seconds.

        Raises:
            EmbeddingError: failed, late, or not the expected shape.
        """
        ...

    async def info(self, timeout_s: float) -> dict[str, Any]:
        """The service's `/info`. Raises EmbeddingError."""
        ...

    async def aclose(self) -> None:
        """Release connections."""
        ...


class Reranker(Protocol):
    """Scores (query, document) pairs."""

    @property
    def provider(self) -> str:
        """The provider's name, as in RERANKER_PROVIDER."""
        ...

    @property
    def model(self) -> str:
        """As configured, for reports when the provider was not heard; empty if the provider decides."""
        ...

    @property
    def answer_margin_s(self) -> float:
        """By how much a deadline handed to the provider is shorter than the wait, so that a partial answer arrives in time."""
        ...

    async def rerank(self, query: str, documents: Sequence[str], wait_s: float) -> Reranking:
        """Score all documents, or as many as fit, within `wait_s` seconds. The answer is decoded but not checked.

        Raises:
            RerankError: with the fallback reason.
        """
        ...

    async def info(self, timeout_s: float) -> dict[str, Any] | None:
        """The provider's declared limits, None where it declares none. Raises RerankError."""
        ...

    async def aclose(self) -> None:
        """Release connections."""
        ...


class SigningKeys(Protocol):
    """The public keys of the identity provider."""

    async def key(self, kid: str | None) -> tuple[Any, str] | None:
        """(key, its algorithm family's name) for a key id; None if the provider has no such key.

        Raises:
            KeysUnavailable: the keys cannot be fetched.
        """
        ...

    async def aclose(self) -> None:
        """Release connections."""
        ...


class IndexPair(Protocol):
    """Two indices with the same passages: `source` is searched, `target` is to be. Whoever writes, writes to both meanwhile.

    Everything raises BackendError.
    """

    source: IndexFacts
    target: IndexFacts

    async def counts(self) -> tuple[int, int]:
        """The numbers of chunks in source and target; whatever was written before can be searched afterwards."""
        ...

    def differences(self) -> AsyncIterator[Sequence[Difference]]:
        """Every chunk that is not the same in both, some at a time; one that waits for its vector in the target is among them."""
        ...

    async def recheck(self, keys: Sequence[str]) -> list[Difference]:
        """Those of these chunks that are not the same in both right now, searchable or not."""
        ...

    async def records(self, keys: Sequence[str]) -> dict[str, Record]:
        """Chunks of the source by key, right now; those that it has."""
        ...

    async def write_target(self, changes: Sequence[tuple[Difference, Record | None]]) -> None:
        """Write or (None) remove chunks of the target. Where somebody else wrote since the difference was seen, theirs stays."""
        ...

    async def sample(self, size: int) -> list[tuple[Record, Record]]:
        """Chunks at random, as source and target have them."""
        ...

    async def search(self, facts: IndexFacts, query: LegQuery) -> list[str]:
        """Chunk ids of one leg in one of the two."""
        ...

    async def swap(self) -> None:
        """From now on the target is searched; the source is kept, and gets every write, until it is retired."""
        ...


class Reindexing(Protocol):
    """The indices behind the searched one. Everything raises BackendError."""

    async def begin(self, fingerprint: str, dimension: int) -> IndexPair:
        """Make an index for this embedding model beside the searched one, or go on with one that was begun."""
        ...

    async def previous(self) -> IndexPair:
        """The searched index as source, the one before it as target."""
        ...

    async def retire(self) -> str | None:
        """Delete the index beside the searched one, half built or kept; its name, None if there was none."""
        ...

    async def aclose(self) -> None:
        """Release connections."""
        ...


class Export(Protocol):
    """Everything that an index holds, on its way to another backend."""

    fingerprint: str
    dimension: int
    chunks: int
    sources: Sequence[tuple[str, str]]
    """(tenant, source) of everything in it."""

    def batches(self) -> Iterator[tuple[str, list[Record]]]:
        """(tenant, some of its records, vectors included), tenant by tenant."""
        ...
