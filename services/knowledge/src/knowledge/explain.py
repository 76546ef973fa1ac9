"""What a search notes on its way, and the receipt and the reasons that are written from it. Without `explain` nothing is noted."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace

from knowledge.deadline import Deadline
from knowledge.fusion import LegList
from knowledge.identifiers import Identifiers
from knowledge.models import Answer, Candidate, Leg, LegResult, Outcome, Query, RerankReport, Result, Scope
from knowledge.receipt import BudgetLine, FusionLine, HeadLine, IdentifierLine, LegHit, LegLine, Receipt, StageTime

TOP = 10
"""Passages of each leg that a receipt lists."""

NO_IDENTIFIERS = Identifiers((), ())
UNTIMED: AbstractContextManager[None] = nullcontext()


@dataclass(frozen=True, slots=True)
class NotedLeg:
    """A leg as it was found and as it was fused."""

    scope: str
    found: LegResult
    fused: LegList
    weight: float

    def line(self) -> LegLine:
        """What the receipt says of it."""
        found, fused = self.found, self.fused
        top = tuple(LegHit(hit.passage.id, rank, hit.score) for rank, hit in enumerate(fused.hits[:TOP], start=1))
        below = len(found.hits) - len(fused.hits)
        state = (found.failed, found.timed_out, found.shards_failed)
        return LegLine(self.scope, fused.sub_query, fused.leg.value, len(found.hits), below, *state, self.weight, fused.factor, top)


@dataclass(frozen=True, slots=True)
class NotedScope:
    """One scope after merging: its head, the order of all its passages, and the rerank scores by chunk id."""

    head: Sequence[Candidate]
    order: Sequence[Candidate]
    scores: Mapping[str, float]


@dataclass(slots=True)
class Trail:
    """The notes of one search. Without a deadline it is deaf: nobody asked, so nothing is noted."""

    deadline: Deadline | None = None
    started_at: float = 0.0
    deadline_s: float = 0.0
    stages: list[StageTime] = field(default_factory=list)
    legs: list[NotedLeg] = field(default_factory=list)
    identifiers: Identifiers = NO_IDENTIFIERS
    rrf_k: int = 0
    weights: Mapping[Leg, float] = field(default_factory=dict)
    sent: Mapping[str, int] = field(default_factory=dict)
    """Characters that were sent to the reranker, by chunk id."""
    query_chars: int = 0
    scopes: dict[str, NotedScope] = field(default_factory=dict)

    @classmethod
    def of(cls, query: Query, deadline: Deadline) -> "Trail":
        """One that listens where the query is to be explained, else the deaf one."""
        return cls(deadline, deadline.clock(), deadline.left()) if query.explain else DEAF

    @property
    def listens(self) -> bool:
        """Whether anything is to be noted."""
        return self.deadline is not None

    def stage(self, name: str) -> AbstractContextManager[None]:
        """Time one stage, if anybody asked."""
        return UNTIMED if self.deadline is None else self._timed(name, self.deadline)

    @contextmanager
    def _timed(self, name: str, deadline: Deadline) -> Iterator[None]:
        begun, left = deadline.clock(), deadline.left()
        try:
            yield
        finally:
            times = (begun - self.started_at, deadline.clock() - begun, left)
            self.stages.append(StageTime(name, *(round(seconds * 1000, 1) for seconds in times)))


DEAF = Trail()
"""Shared by all searches that nobody wants explained."""


def explained(answer: Answer, query: Query, trail: Trail, *, initial_k: int, max_document_chars: int, budget_chars: int) -> Answer:
    """The answer with its receipt, and each of its results with the reasons for its place."""
    receipt = Receipt(
        deadline_ms=round(trail.deadline_s * 1000, 1),
        stages=tuple(trail.stages),
        legs=tuple(leg.line() for leg in trail.legs),
        fusion=FusionLine(trail.rrf_k, {leg.value: weight for leg, weight in trail.weights.items()}),
        budget=BudgetLine(
            initial_k, max_document_chars, budget_chars, len(trail.sent), sum(trail.sent.values()), trail.query_chars if trail.sent else 0
        ),
        head=tuple(line for name, scope in trail.scopes.items() for line in _head_lines(name, scope, trail.sent)),
        identifiers=IdentifierLine(trail.identifiers.strong, trail.identifiers.soft),
    )
    if not query.scoped:
        return replace(answer, receipt=receipt, results=_reasoned(answer.results, query.scopes[0], query, trail, answer.rerank))
    scopes = tuple(
        replace(one, results=_reasoned(one.results, scope, query, trail, one.rerank))
        for one, scope in zip(answer.scopes, query.scopes, strict=True)
    )
    return replace(answer, receipt=receipt, scopes=scopes)


def _head_lines(name: str, scope: NotedScope, sent: Mapping[str, int]) -> Iterator[HeadLine]:
    ranks = {one.passage.id: rank for rank, one in enumerate(scope.order, start=1)}
    for one in scope.head:
        chunk, after = one.passage.id, ranks[one.passage.id]
        yield HeadLine(name, chunk, one.hybrid_rank, after, sent.get(chunk, 0), scope.scores.get(chunk), one.hybrid_rank - after)


def _reasoned(results: Sequence[Result], scope: Scope, query: Query, trail: Trail, report: RerankReport) -> tuple[Result, ...]:
    legs = [leg for leg in trail.legs if leg.scope == scope.name]
    ranks = [{hit.passage.id: rank for rank, hit in enumerate(leg.fused.hits, start=1)} for leg in legs]
    head = frozenset(one.passage.id for one in trail.scopes[scope.name].head)
    return tuple(
        replace(
            one,
            why=(
                *_found(one.candidate, query, legs, ranks),
                *_floor(one.candidate, scope, legs, ranks),
                *_identifiers(one.candidate, trail.identifiers),
                _reranked(one, report, sent=one.candidate.passage.id in head),
            ),
        )
        for one in results
    )


def _found(candidate: Candidate, query: Query, legs: Sequence[NotedLeg], ranks: Sequence[Mapping[str, int]]) -> Iterator[str]:
    """Which legs found it, and where."""
    for leg, by_id in zip(legs, ranks, strict=True):
        rank = by_id.get(candidate.passage.id)
        if rank is None:
            continue
        one_of_many = len(query.searched) > 1 and leg.fused.leg is not Leg.IDENTIFIER
        which = f" for sub-query {leg.fused.sub_query}" if one_of_many else ""
        yield f"The {leg.fused.leg.value} leg found it at rank {rank}{which}."
        if query.use_importance and leg.fused.leg is Leg.VECTOR:
            yield f"That leg is ordered by similarity times importance, which is {candidate.passage.importance:g} here."


def _floor(candidate: Candidate, scope: Scope, legs: Sequence[NotedLeg], ranks: Sequence[Mapping[str, int]]) -> Iterator[str]:
    """What `min_similarity` did to it."""
    chunk, floor = candidate.passage.id, scope.min_similarity
    if floor is None:
        return
    for leg, by_id in zip(legs, ranks, strict=True):
        if leg.fused.leg is not Leg.VECTOR:
            continue
        below = any(hit.passage.id == chunk and hit.score < floor for hit in leg.found.hits)
        if below and chunk in by_id:
            yield f"Its similarity is below the floor of {floor:g}; the strong identifier exempts it."
        elif below:
            yield f"Its similarity is below the floor of {floor:g}, so the vector leg does not count for it."


def _identifiers(candidate: Candidate, asked: Identifiers) -> Iterator[str]:
    """Which identifiers of the question it holds."""
    strong = [name for name in candidate.matched_identifiers if name in asked.strong]
    soft = [name for name in candidate.matched_identifiers if name in asked.soft]
    if strong:
        share = f"{len(strong)} of {len(asked.strong)}"
        yield f"It holds {', '.join(strong)}, {share} strong identifiers of the question: it stands above all passages with fewer."
    if soft:
        yield f"It holds {', '.join(soft)}, which the question names too."


def _reranked(result: Result, report: RerankReport, *, sent: bool) -> str:
    """What reranking did to it."""
    before, after = result.candidate.hybrid_rank, result.rank
    place = f"moved from {before} to {after}" if before != after else f"stayed at {after}"
    if report.status is Outcome.FALLBACK and report.reason is not None:
        return f"Reranking fell back ({report.reason.value}): this is the hybrid order."
    if report.status is Outcome.SKIPPED and report.reason is not None:
        return f"Reranking was skipped ({report.reason.value}): this is the hybrid order."
    if result.rerank_score is not None:
        return f"Reranking scored it {result.rerank_score:.3f}; it {place}."
    if sent:
        return f"Reranking gave it no score; it {place}, behind those that have one."
    return f"It stands behind the {report.candidates} passages that were reranked; it {place}."
