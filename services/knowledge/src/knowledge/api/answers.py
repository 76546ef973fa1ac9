"""From the pipeline's `Answer` to the body on the wire."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import orjson
from fastapi.responses import JSONResponse

from knowledge.models import Answer, RerankReport, Result, ScopeAnswer


class AnswerResponse(JSONResponse):
    """A JSON body by a quicker library."""

    def render(self, content: Any) -> bytes:
        """The body as bytes."""
        try:
            return orjson.dumps(content)
        except TypeError:
            # Metadata may hold whole numbers beyond 64 bits.
            return super().render(content)


def answer_body(answer: Answer, *, trace_id: str, explain: bool) -> dict[str, Any]:
    """The body of `AnswerBody`'s shape; `receipt` only where there is one."""
    body = {
        "results": _results(answer.results, explain=explain),
        "scopes": [_scope(scope, explain=explain) for scope in answer.scopes],
        "ranking": answer.ranking.value,
        "rerank": _rerank(answer.rerank),
        "degraded": [item.value for item in answer.degraded],
        "warnings": list(answer.warnings),
        "elapsed_ms": answer.elapsed_ms,
        "trace_id": trace_id,
    }
    if answer.receipt is not None:
        body["receipt"] = asdict(answer.receipt)
    return body


def hybrid_body(answer: Answer, *, trace_id: str, explain: bool) -> dict[str, Any]:
    """The same before anything was reranked: `rerank` is null, in each scope too."""
    body = answer_body(answer, trace_id=trace_id, explain=explain)
    return {**body, "rerank": None, "scopes": [{**scope, "rerank": None} for scope in body["scopes"]]}


def _scope(scope: ScopeAnswer, *, explain: bool) -> dict[str, Any]:
    return {
        "name": scope.name,
        "results": _results(scope.results, explain=explain),
        "ranking": scope.ranking.value,
        "rerank": _rerank(scope.rerank),
        "degraded": [item.value for item in scope.degraded],
    }


def _rerank(report: RerankReport) -> dict[str, Any]:
    return {
        "status": report.status.value,
        "reason": report.reason.value if report.reason else None,
        "provider": report.provider,
        "model": report.model,
        "score_kind": report.score_kind.value if report.score_kind else None,
        "candidates": report.candidates,
        "scored": report.scored,
        "elapsed_ms": report.elapsed_ms,
    }


def _results(results: Sequence[Result], *, explain: bool) -> list[dict[str, Any]]:
    return [_result(result, explain=explain) for result in results]


def _result(result: Result, *, explain: bool) -> dict[str, Any]:
    candidate, passage = result.candidate, result.candidate.passage
    return {
        "id": passage.id,
        "document_id": passage.document_id,
        "title": passage.title,
        "content": passage.content,
        "language": passage.language,
        "metadata": dict(passage.metadata),
        "rank": result.rank,
        "hybrid_rank": candidate.hybrid_rank,
        "scores": {
            "rrf": candidate.rrf,
            "similarity": candidate.similarity,
            "bm25": candidate.bm25,
            "rerank": result.rerank_score,
        },
        "matched_identifiers": list(candidate.matched_identifiers),
        "explain": _explanation(result) if explain else {},
    }


def _explanation(result: Result) -> dict[str, Any]:
    candidate = result.candidate
    return {"fusion_terms": dict(candidate.terms), "importance": candidate.passage.importance, "why": list(result.why)}
