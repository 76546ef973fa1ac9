"""The rankings that are compared, each out of the gateway's own parts: single legs, the hybrid list, the reranked one."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from knowledge.deadline import Deadline
from knowledge.models import Identity, Leg, LegQuery, Passage, Query, Reranking, Scope, Visibility
from knowledge.pipeline import Pipeline
from knowledge.ports import Backend, Embedder, Reranker
from tests.quality.data import ROLE, DataSet, Question
from tests.quality.gateways import TENANT

IDENTITY = Identity(TENANT, "quality", frozenset({ROLE}))
DEPTH = 50
DEADLINE_S = 120.0
LEGS = ("BM25 leg", "vector leg")
RANKINGS = (*LEGS, "hybrid", "hybrid + rerank")


@dataclass(slots=True)
class RememberingReranker:
    """A reranker that asks its inner one for each pair once: the same pairs come again on the second backend."""

    inner: Reranker
    known: dict[tuple[str, str], float] = field(default_factory=dict)
    last: Reranking | None = None

    @property
    def provider(self) -> str:
        """As the inner one."""
        return self.inner.provider

    @property
    def model(self) -> str:
        """As the inner one."""
        return self.inner.model

    @property
    def answer_margin_s(self) -> float:
        """As the inner one."""
        return self.inner.answer_margin_s

    async def rerank(self, query: str, documents: Sequence[str], wait_s: float) -> Reranking:
        """Scores of all documents, the unknown ones from the inner reranker."""
        new = [text for text in dict.fromkeys(documents) if (query, text) not in self.known]
        if new or self.last is None:
            self.last = await self.inner.rerank(query, new or documents, wait_s)
            asked = new or list(documents)
            if len(self.last.results) != len(asked):
                raise RuntimeError("the reranker left pairs unscored, so its quality cannot be measured")
            self.known.update({(query, asked[index]): score for index, score in self.last.results})
        results = [(index, self.known[query, text]) for index, text in enumerate(documents)]
        return Reranking(results, self.last.model, self.last.score_kind)

    async def info(self, timeout_s: float) -> dict[str, object] | None:
        """As the inner one."""
        return await self.inner.info(timeout_s)

    async def aclose(self) -> None:
        """As the inner one."""
        await self.inner.aclose()


async def rankings(question: Question, data: DataSet, pipeline: Pipeline, backend: Backend, embedder: Embedder) -> dict[str, list[Passage]]:
    """The passages of each ranking, best first."""
    top_k = 10 if data.measure == "nDCG@10" else 5
    found = await legs(question, top_k, backend, embedder)
    found["hybrid"] = await hybrid(question, top_k, pipeline, rerank=False)
    found["hybrid + rerank"] = await hybrid(question, top_k, pipeline, rerank=True)
    return found


async def legs(question: Question, top_k: int, backend: Backend, embedder: Embedder) -> dict[str, list[Passage]]:
    """The first passages of each leg, best first."""
    visibility = Visibility.of(IDENTITY)
    vector = (await embedder.embed([question.text], "query", DEADLINE_S)).vectors[0]
    lexical, dense = await backend.msearch(
        [
            LegQuery(Leg.LEXICAL, visibility, DEPTH, text=question.text),
            LegQuery(Leg.VECTOR, visibility, DEPTH, vector=vector),
        ],
        DEADLINE_S,
    )
    return {name: [hit.passage for hit in result.hits[:top_k]] for name, result in zip(LEGS, (lexical, dense), strict=True)}


async def hybrid(question: Question, top_k: int, pipeline: Pipeline, *, rerank: bool) -> list[Passage]:
    """The passages that the gateway answers with.

    Raises:
        RuntimeError: a leg or the reranker failed, so that something else would be measured.
    """
    query = Query(question.text, (), top_k, (Scope("", (), top_k, None),), rerank=rerank)
    answer = await pipeline.search(query, IDENTITY, Deadline.after(DEADLINE_S))
    if answer.degraded:
        raise RuntimeError(f"question {question.id}: degraded: {', '.join(answer.degraded)}")
    if rerank and answer.rerank.status.value not in ("applied", "skipped"):
        raise RuntimeError(f"question {question.id}: {answer.rerank.status.value} ({answer.rerank.reason})")
    return [result.candidate.passage for result in answer.results]
