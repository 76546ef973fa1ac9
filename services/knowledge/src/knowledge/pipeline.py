"""The one path a query takes, top to bottom.

    identity -> Query -> embed -> msearch (filter in each leg) -> fuse
             -> head / tail -> budget -> rerank in time -> merge -> Answer

`Pipeline.search` is that line; each step is one call. What can fail is decided in the step's module and comes back as a value.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from opentelemetry import trace

from knowledge.budget import cut, share_heads
from knowledge.deadline import Deadline
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
from knowledge.telemetry import Instruments

NOTHING_TO_RERANK = RerankReport(Outcome.SKIPPED, SkipReason.NO_CANDIDATES)
"""The report of a scope without candidates, whatever became of the others."""


@dataclass(frozen=True, slots=True)
class Hybrid:
    """The first half of a search: what is shown at once, and what every fallback falls back to."""

    query: Query
    scopes: tuple[ScopeHybrid, ...]
    degraded: tuple[Degraded, ...]


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
        started, span = deadline.clock(), trace.get_current_span()
        try:
            hybrid = await self.hybrid(query, identity, deadline)
            heads = self.heads(hybrid)
            scores = await self.score(hybrid, heads, deadline)
        except asyncio.CancelledError:
            self._metrics.record_cancelled(span)
            raise
        answer = self.merge(hybrid, heads, scores)
        answer = replace(answer, elapsed_ms=round((deadline.clock() - started) * 1000, 1))
        found = sum(len(scope.candidates) for scope in hybrid.scopes)
        self._metrics.record_search(span, answer.rerank, answer.degraded, found)
        return answer

    async def hybrid(self, query: Query, identity: Identity, deadline: Deadline) -> Hybrid:
        """Steps 1 to 8: the permission filter out of the identity, then the fused candidates of each scope."""
        scopes = await self._retriever.retrieve(query, Visibility.of(identity), deadline)
        found = {item for scope in scopes for item in scope.degraded}
        if not identity.roles:
            found.add(Degraded.NO_PERMISSIONS)
        return Hybrid(query, tuple(scopes), tuple(item for item in Degraded if item in found))

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
            return ChunkScores(RerankReport(Outcome.SKIPPED, reason), {})
        # A chunk that stands in several scopes is sent once.
        sent = list({candidate.passage.id: candidate for head in in_turn(heads) for candidate in head}.values())
        documents = [cut(self._text(candidate), self._settings.reranker_max_document_chars) for candidate in sent]
        question = cut(hybrid.query.text, self._settings.reranker_max_query_chars)
        with self._metrics.stage("rerank"):
            scores: Scores = await self._rerank.score(question, documents, deadline)
        return ChunkScores(scores.report, {sent[index].passage.id: score for index, score in scores.by_index.items()})

    def merge(self, hybrid: Hybrid, heads: Sequence[Sequence[Candidate]], scores: "ChunkScores") -> Answer:
        """Step 11: scored head, unscored head, tail; then the identifier tiers; cut to `top_k`."""
        query = hybrid.query
        answers = []
        for scope, head in zip(hybrid.scopes, heads, strict=True):
            merged = merge_head(scope.candidates, len(head), scores.by_chunk)
            counts = [len(scope.strong.intersection(candidate.passage.identifiers)) for candidate in merged]
            shown = {candidate.passage.id: scores.by_chunk.get(candidate.passage.id) for candidate in head}
            results = tuple(
                Result(candidate, rank, shown.get(candidate.passage.id))
                for rank, candidate in enumerate(tiers(merged, counts)[: scope.scope.top_k], start=1)
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

    def _text(self, candidate: Candidate) -> str:
        passage = candidate.passage
        return join_text(self._text_fields, passage.title, passage.content, passage.metadata)


@dataclass(frozen=True, slots=True)
class ChunkScores:
    """Rerank scores by chunk id, and the report."""

    report: RerankReport
    by_chunk: Mapping[str, float]


def in_turn(heads: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
    """The heads by hybrid rank: all first candidates, then all second ones, so that a partial answer is fair to all scopes."""
    longest = max((len(head) for head in heads), default=0)
    return [[head[rank] for head in heads if rank < len(head)] for rank in range(longest)]


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
