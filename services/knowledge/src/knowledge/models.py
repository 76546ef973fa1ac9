"""The things the gateway speaks of: identity, query, passage, hit, answer. Frozen; no behaviour beyond themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from knowledge.errors import FallbackReason
from knowledge.receipt import Receipt

Filters = tuple[tuple[str, tuple[str, ...]], ...]
"""Conditions that must all hold: (field name, accepted values, any of them). A field may stand in several conditions."""


class Leg(StrEnum):
    """One way to find passages."""

    LEXICAL = "lexical"
    VECTOR = "vector"
    IDENTIFIER = "identifier"


class Degraded(StrEnum):
    """What was missing when the answer was made (closed set)."""

    VECTOR = "vector"
    LEXICAL = "lexical"
    IDENTIFIER = "identifier"
    SHARDS = "shards"
    TIMED_OUT = "timed_out"
    NO_PERMISSIONS = "no_permissions"


class Outcome(StrEnum):
    """What became of reranking."""

    APPLIED = "applied"
    PARTIAL = "partial"
    FALLBACK = "fallback"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class SkipReason(StrEnum):
    """Why reranking was not tried: no fault of anybody."""

    DISABLED = "disabled"
    NOT_CONFIGURED = "not_configured"
    NOT_REQUESTED = "not_requested"
    TOO_FEW_CANDIDATES = "too_few_candidates"
    NO_CANDIDATES = "no_candidates"


class PartialReason(StrEnum):
    """Why some of the head was not scored."""

    DEADLINE = "deadline"
    UNSCORED = "unscored"


class ScoreKind(StrEnum):
    """The scale of a rerank score; a threshold means something on a probability only."""

    PROBABILITY = "probability"
    LOGIT = "logit"
    OPAQUE = "opaque"


class Ranking(StrEnum):
    """How the results are ordered."""

    RERANKED = "reranked"
    PARTIALLY_RERANKED = "partially_reranked"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks, out of the signed token and nothing else."""

    tenant: str
    subject: str
    roles: frozenset[str]


@dataclass(frozen=True, slots=True)
class Visibility:
    """The permission filter: a passage is visible iff its tenant is this one AND (roles meet OR it names the subject).

    Built from the identity alone and part of every leg. Empty roles never widen: only passages that name the subject remain.
    """

    tenant: str
    subject: str
    roles: frozenset[str]

    @classmethod
    def of(cls, identity: Identity) -> "Visibility":
        """The filter of an identity."""
        return cls(identity.tenant, identity.subject, identity.roles)

    def allows(self, *, tenant: str, allowed_roles: Sequence[str], allowed_subjects: Sequence[str]) -> bool:
        """The rule itself, for the tests and for checks on single documents."""
        return tenant == self.tenant and (bool(self.roles.intersection(allowed_roles)) or self.subject in allowed_subjects)


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk as callers see it: nothing about permissions, no vector."""

    id: str
    document_id: str
    title: str
    content: str
    language: str
    metadata: Mapping[str, Any]
    importance: float = 1.0
    identifiers: tuple[str, ...] = ()


def join_text(fields: Sequence[str], title: str, content: str, metadata: Mapping[str, Any]) -> str:
    """The text that is embedded, searched and reranked: the configured fields, one a line, blanks left out."""
    values: list[str] = []
    for name in fields:
        value: Any = {"title": title, "content": content}.get(name, metadata.get(name))
        if value is not None and (text := ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)).strip():
            values.append(text)
    return "\n".join(values)


@dataclass(frozen=True, slots=True)
class Scope:
    """One named part of a request with its own candidates, floor, order and length."""

    name: str
    filters: Filters
    top_k: int
    min_similarity: float | None


@dataclass(frozen=True, slots=True)
class Query:
    """A search as the pipeline sees it: validated, trimmed, defaults filled in."""

    text: str
    sub_queries: tuple[str, ...]
    top_k: int
    scopes: tuple[Scope, ...]
    """Always at least one; without scopes in the request it is one unnamed scope."""
    scoped: bool = False
    language: str | None = None
    """None searches every language field."""
    rerank: bool = True
    rerank_depth: int = 15
    drop_lexical_below_floor: bool = False
    """`min_similarity_mode` `all`."""
    use_importance: bool = False
    explain: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def searched(self) -> tuple[str, ...]:
        """The texts that are searched: the distinct sub-queries, or the question when there are none."""
        return self.sub_queries or (self.text,)


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage found by one leg. `score` is the leg's own: BM25, raw cosine in -1..1, or the count of matched identifiers."""

    passage: Passage
    score: float


@dataclass(frozen=True, slots=True)
class LegQuery:
    """One body of the multi-search. Exactly one of `text`, `vector` and `identifiers` is used, by the leg."""

    leg: Leg
    visibility: Visibility
    size: int
    filters: Filters = ()
    text: str = ""
    language: str | None = None
    vector: tuple[float, ...] = ()
    identifiers: tuple[str, ...] = ()
    fingerprint: str = ""
    """Of the model that made `vector`: a backend that holds vectors of another one fails the leg. Empty: not checked."""


@dataclass(frozen=True, slots=True)
class LegResult:
    """What one body gave. `timed_out` and `shards_failed` keep what was found; with `failed` there are no hits, whatever else."""

    hits: tuple[Hit, ...] = ()
    failed: bool = False
    timed_out: bool = False
    shards_failed: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fused passage with everything that is known of it before reranking. `hybrid_rank` counts from 1."""

    passage: Passage
    hybrid_rank: int
    rrf: float
    similarity: float | None
    bm25: float | None
    matched_identifiers: tuple[str, ...] = ()
    terms: Mapping[str, float] = field(default_factory=dict)
    """Fusion terms by leg and sub-query, for `explain`."""


@dataclass(frozen=True, slots=True)
class Reranking:
    """A provider's raw answer, not yet checked: pairs of (index, score) as they came off the wire."""

    results: Sequence[tuple[Any, Any]]
    model: str
    score_kind: ScoreKind
    unscored: Sequence[tuple[Any, Any]] = ()
    """Pairs of (index, reason), where the provider names what it left out."""


@dataclass(frozen=True, slots=True)
class RerankReport:
    """The `rerank` object of an answer."""

    status: Outcome
    reason: SkipReason | PartialReason | FallbackReason | None = None
    provider: str | None = None
    model: str | None = None
    score_kind: ScoreKind | None = None
    candidates: int = 0
    scored: int = 0
    elapsed_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Result:
    """One line of an answer."""

    candidate: Candidate
    rank: int
    rerank_score: float | None = None
    why: tuple[str, ...] = ()
    """The reasons for its place, in sentences; only where the query asks for explanations."""


@dataclass(frozen=True, slots=True)
class ScopeAnswer:
    """The results of one scope."""

    name: str
    results: tuple[Result, ...]
    ranking: Ranking
    rerank: RerankReport
    degraded: tuple[Degraded, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a search gives. With scopes `results` is empty and each scope has its own."""

    results: tuple[Result, ...]
    scopes: tuple[ScopeAnswer, ...]
    ranking: Ranking
    rerank: RerankReport
    degraded: tuple[Degraded, ...]
    warnings: tuple[str, ...]
    elapsed_ms: float
    receipt: Receipt | None = None
    """Only where the query asks for explanations."""

    @property
    def lists(self) -> tuple[tuple[Result, ...], ...]:
        """The results, or those of each scope."""
        return tuple(scope.results for scope in self.scopes) or (self.results,)


@dataclass(frozen=True, slots=True)
class Record:
    """A chunk as it is stored: the passage, its permissions, its vector and the two hashes that decide the work on it.

    `embed_hash` covers the exact embedded text and the embedding fingerprint; `record_hash` covers every other stored field.
    """

    id: str
    tenant: str
    document_id: str
    chunk_key: str
    ordinal: int
    source: str
    document_title: str
    title: str
    content: str
    text: str
    """The configured text fields joined: what the lexical leg searches and what was embedded."""
    language: str
    category: str
    tags: tuple[str, ...]
    metadata: Mapping[str, Any]
    allowed_roles: tuple[str, ...]
    allowed_subjects: tuple[str, ...]
    importance: float
    identifiers: tuple[str, ...]
    embed_hash: str
    record_hash: str
    vector: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """What a writer must know of a chunk that is already there."""

    id: str
    embed_hash: str
    record_hash: str


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """A physical index: its name, and the embedding model that it was made for."""

    name: str
    fingerprint: str
    dimension: int


@dataclass(frozen=True, slots=True)
class Difference:
    """A chunk that is not the same in two indices, by its key there.

    `in_source`: whether the source has it. `target_version`: of what the target has, so that no newer write is overtaken; None: nothing.
    """

    key: str
    in_source: bool
    target_version: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class WriteFailure:
    """One chunk that the backend refused, with a reason that holds no document text."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document put together from its chunks, for `GET /documents/{id}` and for the audit."""

    document_id: str
    title: str
    language: str
    category: str
    tags: tuple[str, ...]
    source: str
    allowed_roles: tuple[str, ...]
    allowed_subjects: tuple[str, ...]
    chunks: tuple[Passage, ...]


@dataclass(frozen=True, slots=True)
class SourceStatistics:
    """How much a source of a tenant has put in. Documents may be an estimate where they are very many."""

    tenant: str
    source: str
    documents: int
    chunks: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """What an index holds, and the embedding model it was made for; None where there is no index, or nothing in it yet."""

    fingerprint: str | None
    dimension: int | None
    sources: tuple[SourceStatistics, ...]


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Vectors in the order of the texts, shape (n, dimension), and the fingerprint of what made them."""

    vectors: tuple[tuple[float, ...], ...]
    model: str
    fingerprint: str

    @property
    def dimension(self) -> int:
        """Length of each vector."""
        return len(self.vectors[0]) if self.vectors else 0


class Verdict(StrEnum):
    """How a check of `knowledge doctor` went."""

    OK = "ok"
    WARNING = "warning"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor: what was checked, how it went, what to do."""

    verdict: Verdict
    subject: str
    detail: str
