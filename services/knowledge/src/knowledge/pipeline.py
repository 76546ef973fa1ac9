"""The one path a query takes, top to bottom.

    identity -> Query -> embed -> msearch (filter in each leg) -> fuse
             -> head / tail -> budget -> rerank in time -> merge -> Answer

`Pipeline.search` is that line; each step is one call. What can fail is decided in the step's module and comes back as a value.
`Pipeline.stream` is the same line, which shows the hybrid list on its way.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from opentelemetry import trace

from knowledge.budget import cut, share_heads
from knowledge.deadline import Clock, Deadline
from knowledge.explain import NotedScope, Trail, explained
from knowledge.identifiers import tiers
from knowledge.models import (
    Answer,
    Candidate,
    Degraded,
    Identity,
    Outcome,
    Query,
    Ranking,
    RerankReport,
    Result,
    ScopeAnswer,
    SkipReason,
    Visibility,
    join_text,
)
from knowledge.rerank import RerankStage, Scores
from knowledge.retrieve import Retriever, ScopeHybrid
from knowledge.settings import RerankerSettings, SearchSettings
from knowledge.telemetry import RERANKER_TIME_LEFT_S, Instruments

NOTHING_TO_RERANK = RerankReport(Outcome.SKIPPED, SkipReason.NO_CANDIDATES)
"""The report of a scope without candidates, whatever became of the others."""


@dataclass(frozen=True, slots=True)
class Hybrid:
    """The first half of a search: what is shown at once, and what every fallback falls back to."""

    query: Query
    scopes: tuple[ScopeHybrid, ...]
    degraded: tuple[Degraded, ...]
    trail: Trail


class Pipeline:
    """Answers queries. Holds no state of a request."""

    def __init__(
        self,
        retriever: Retriever,
        rerank: RerankStage,
        *,
        search: SearchSettings,
        reranker: RerankerSettings,
        metrics: Instruments,
    ) -> None:
        self._retriever = retriever
        self._rerank = rerank
        self._text_fields = search.text_fields
        self._settings = reranker
        self._metrics = metrics

    async def search(self, query: Query, identity: Identity, deadline: Deadline) -> Answer:
        """Answer `query` for `identity` before `deadline`.

        Raises:
            RequestError: nothing can be served (no leg answered, or the time was gone before).
        """
        begun = Begun.now(query, deadline)
        with self._metrics.cancellation(begun.span):
            hybrid = await self.hybrid(query, identity, deadline, begun.trail)
            heads = self.heads(hybrid)
            scores = await self.score(hybrid, heads, deadline)
        return self._answer(hybrid, heads, scores, begun)

    async def stream(self, query: Query, identity: Identity, deadline: Deadline) -> AsyncGenerator[Answer, None]:
        """Two answers: the hybrid one as soon as it is known, then what `search` answers. Who closes it in between cancels the search.

        The first one's report says nothing: what becomes of reranking is not known yet.

        Raises:
            RequestError: as `search`; after the first answer only a provider's refusal.
        """
        begun = Begun.now(query, deadline)
        with self._metrics.cancellation(begun.span):
            hybrid = await self.hybrid(query, identity, deadline, begun.trail)
            heads = self.heads(hybrid)
            yield replace(self.merge(hybrid, heads, NOT_SCORED_YET), elapsed_ms=begun.elapsed_ms())
            scores = await self.score(hybrid, heads, deadline)
        yield self._answer(hybrid, heads, scores, begun)

    def _answer(self, hybrid: Hybrid, heads: Sequence[Sequence[Candidate]], scores: "ChunkScores", begun: "Begun") -> Answer:
        """The last step of both, told to trace, metrics and log."""
        with hybrid.trail.stage("merge"):
            answer = self.merge(hybrid, heads, scores)
        answer = replace(answer, elapsed_ms=begun.elapsed_ms())
        found = sum(len(scope.candidates) for scope in hybrid.scopes)
        self._metrics.record_search(begun.span, answer, found)
        return self._explained(answer, hybrid, heads, scores) if hybrid.trail.listens else answer

    async def hybrid(self, query: Query, identity: Identity, deadline: Deadline, trail: Trail) -> Hybrid:
        """Steps 1 to 8: the permission filter out of the identity, then the fused candidates of each scope."""
        scopes = await self._retriever.retrieve(query, Visibility.of(identity), deadline, trail)
        found = {item for scope in scopes for item in scope.degraded}
        if not identity.roles:
            found.add(Degraded.NO_PERMISSIONS)
        return Hybrid(query, tuple(scopes), tuple(item for item in Degraded if item in found), trail)

    def heads(self, hybrid: Hybrid) -> list[Sequence[Candidate]]:
        """Step 8: the head of each scope; together they are at most `INITIAL_K` pairs."""
        depth = min(hybrid.query.rerank_depth, self._settings.reranker_initial_k)
        lengths = share_heads([scope.candidates for scope in hybrid.scopes], depth)
        return [scope.candidates[:length] for scope, length in zip(hybrid.scopes, lengths, strict=True)]

    async def score(self, hybrid: Hybrid, heads: Sequence[Sequence[Candidate]], deadline: Deadline) -> "ChunkScores":
        """Steps 9 and 10: cut to the budget and score the head against the original question in the time left."""
        longest = max((len(head) for head in heads), default=0)
        reason = self._rerank.skip_reason(requested=hybrid.query.rerank, candidates=longest)
        if reason is not None:
            return ChunkScores(RerankReport(Outcome.SKIPPED, reason))
        # A chunk that stands in several scopes is sent once.
        sent = list({candidate.passage.id: candidate for head in in_turn(heads) for candidate in head}.values())
        documents = [cut(self._text(candidate), self._settings.reranker_max_document_chars) for candidate in sent]
        question = cut(hybrid.query.text, self._settings.reranker_max_query_chars)
        trace.get_current_span().set_attribute(RERANKER_TIME_LEFT_S, round(deadline.left(), 3))
        with hybrid.trail.stage("rerank"), self._metrics.stage("rerank"):
            scores: Scores = await self._rerank.score(question, documents, deadline)
        if hybrid.trail.listens and scores.asked:
            lengths = zip(sent, documents, strict=True)
            hybrid.trail.sent = {candidate.passage.id: len(document) for candidate, document in lengths}
            hybrid.trail.query_chars = len(question)
        return ChunkScores(scores.report, {sent[index].passage.id: score for index, score in scores.by_index.items()})

    def merge(self, hybrid: Hybrid, heads: Sequence[Sequence[Candidate]], scores: "ChunkScores") -> Answer:
        """Step 11: scored head, unscored head, tail; then the identifier tiers; cut to `top_k`."""
        query = hybrid.query
        answers = []
        for scope, head in zip(hybrid.scopes, heads, strict=True):
            merged = in_order(scope, head, scores.by_chunk)
            shown = {candidate.passage.id: scores.by_chunk.get(candidate.passage.id) for candidate in head}
            results = tuple(
                Result(candidate, rank, shown.get(candidate.passage.id))
                for rank, candidate in enumerate(merged[: scope.scope.top_k], start=1)
            )
            scored = sum(candidate.passage.id in scores.by_chunk for candidate in head)
            report = replace(scores.report, candidates=len(head), scored=scored) if head else NOTHING_TO_RERANK
            answers.append(ScopeAnswer(scope.scope.name, results, ranking(report), report, scope.degraded))
        warnings = dict.fromkeys((*query.warnings, *(warning for scope in hybrid.scopes for warning in scope.warnings)))
        whole = answers[0].rerank if not query.scoped else scores.report
        return Answer(
            results=() if query.scoped else answers[0].results,
            scopes=tuple(answers) if query.scoped else (),
            ranking=ranking(whole),
            rerank=whole,
            degraded=hybrid.degraded,
            warnings=tuple(warnings),
            elapsed_ms=0.0,
        )

    def _explained(self, answer: Answer, hybrid: Hybrid, heads: Sequence[Sequence[Candidate]], scores: "ChunkScores") -> Answer:
        for scope, head in zip(hybrid.scopes, heads, strict=True):
            hybrid.trail.scopes[scope.scope.name] = NotedScope(head, in_order(scope, head, scores.by_chunk), scores.by_chunk)
        return explained(
            answer,
            hybrid.query,
            hybrid.trail,
            initial_k=self._settings.reranker_initial_k,
            max_document_chars=self._settings.reranker_max_document_chars,
            budget_chars=self._settings.rerank_scored_chars_budget,
        )

    def _text(self, candidate: Candidate) -> str:
        passage = candidate.passage
        return join_text(self._text_fields, passage.title, passage.content, passage.metadata)


@dataclass(frozen=True, slots=True)
class ChunkScores:
    """Rerank scores by chunk id, and the report."""

    report: RerankReport
    by_chunk: Mapping[str, float] = field(default_factory=dict)


NOT_SCORED_YET = ChunkScores(RerankReport(Outcome.SKIPPED))
"""What the hybrid answer of a stream is merged with."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A search that is under way: since when, in which span, with which notes."""

    at: float
    clock: Clock
    span: trace.Span
    trail: Trail

    @classmethod
    def now(cls, query: Query, deadline: Deadline) -> "Begun":
        """It begins."""
        return cls(deadline.clock(), deadline.clock, trace.get_current_span(), Trail.of(query, deadline))

    def elapsed_ms(self) -> float:
        """Milliseconds since."""
        return round((self.clock() - self.at) * 1000, 1)


def in_turn(heads: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
    """The heads by hybrid rank: all first candidates, then all second ones, so that a partial answer is fair to all scopes."""
    longest = max((len(head) for head in heads), default=0)
    return [[head[rank] for head in heads if rank < len(head)] for rank in range(longest)]


def in_order(scope: ScopeHybrid, head: Sequence[Candidate], scores: Mapping[str, float]) -> list[Candidate]:
    """All candidates of a scope: reranked as far as there are scores, and the identifier tiers above that."""
    merged = merge_head(scope.candidates, len(head), scores)
    return tiers(merged, [len(scope.strong.intersection(candidate.passage.identifiers)) for candidate in merged])


def merge_head(candidates: Sequence[Candidate], head: int, scores: Mapping[str, float]) -> list[Candidate]:
    """Scored head by (score desc, hybrid rank asc), unscored head in hybrid order, tail in hybrid order."""
    first = candidates[:head]
    scored = [candidate for candidate in first if candidate.passage.id in scores]
    unscored = [candidate for candidate in first if candidate.passage.id not in scores]
    scored.sort(key=lambda candidate: (-scores[candidate.passage.id], candidate.hybrid_rank))
    return [*scored, *unscored, *candidates[head:]]


def ranking(report: RerankReport) -> Ranking:
    """The word for how a list is ordered."""
    if report.status not in (Outcome.APPLIED, Outcome.PARTIAL) or report.scored == 0:
        return Ranking.HYBRID
    return Ranking.RERANKED if report.scored == report.candidates else Ranking.PARTIALLY_RERANKED
