"""The receipt of a search, for operators who ask for it: what each stage took, found and moved.

It holds passages that passed the permission filter and numbers about them. No filter clause, permission, address or count of the index.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StageTime:
    """One stage: `embed`, `retrieve`, `fuse`, `rerank` or `merge`. `left_ms` is the time that was left when it began."""

    name: str
    start_ms: float
    elapsed_ms: float
    left_ms: float


@dataclass(frozen=True, slots=True)
class LegHit:
    """A passage in a leg, at the rank that fusion counted. `score` is the leg's own."""

    id: str
    rank: int
    score: float


@dataclass(frozen=True, slots=True)
class LegLine:
    """One leg of one sub-query in one scope."""

    scope: str
    sub_query: int
    """Counts from 0, as the fusion terms do."""
    leg: str
    hits: int
    """What the leg found, at most its depth: never how many there are."""
    below_floor: int
    """How many of them `min_similarity` took out."""
    failed: bool
    timed_out: bool
    shards_failed: bool
    weight: float
    factor: float
    """What the weight was multiplied by, because the words of the question and of the best passage are many the same."""
    top: tuple[LegHit, ...]


@dataclass(frozen=True, slots=True)
class FusionLine:
    """The constants of reciprocal rank fusion; the weights by leg."""

    rrf_k: int
    weights: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """What the reranker may be sent and what it was sent, in code points. Nothing was sent where nobody was asked."""

    initial_k: int
    max_document_chars: int
    budget_chars: int
    sent_documents: int
    sent_chars: int
    query_chars: int


@dataclass(frozen=True, slots=True)
class HeadLine:
    """One passage of the head. `moved` is how many ranks it rose; it fell where that is negative."""

    scope: str
    id: str
    hybrid_rank: int
    rank_after: int
    chars_sent: int
    rerank: float | None
    moved: int


@dataclass(frozen=True, slots=True)
class IdentifierLine:
    """The identifiers that the question and its sub-queries were found to hold."""

    strong: tuple[str, ...]
    soft: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Receipt:
    """Everything above, of one search. `deadline_ms` is the time that it had when it began."""

    deadline_ms: float
    stages: tuple[StageTime, ...]
    legs: tuple[LegLine, ...]
    fusion: FusionLine
    budget: BudgetLine
    head: tuple[HeadLine, ...]
    identifiers: IdentifierLine
