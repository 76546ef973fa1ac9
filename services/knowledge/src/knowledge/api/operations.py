"""`/info`: limits, models and the budget, for callers and for platform engineers. Nothing of it is secret."""

from importlib.metadata import version
from typing import Any

from fastapi import APIRouter

from knowledge.api.dependencies import GatewayDep
from knowledge.api.schemas import MAX_QUERY_CHARS, MAX_SCOPES, MAX_SUB_QUERIES, MAX_TOP_K
from knowledge.errors import FallbackReason
from knowledge.models import Degraded
from knowledge.telemetry import SERVICE

router = APIRouter(tags=["operations"])


@router.get("/info", summary="Limits, models, budget")
async def info(gateway: GatewayDep) -> dict[str, Any]:
    """What the service is set to."""
    settings = gateway.settings
    return {
        "service": SERVICE,
        "version": version("knowledge-gateway"),
        "search_backend": settings.search.search_backend,
        "reranker": {
            "enabled": settings.reranker.reranker_enabled,
            "configured": bool(settings.reranker.reranker_url),
            "provider": settings.reranker.reranker_provider,
            "initial_k": settings.reranker.reranker_initial_k,
            "max_document_chars": settings.reranker.reranker_max_document_chars,
            "scored_chars_budget": settings.reranker.rerank_scored_chars_budget,
            "timeout_s": settings.reranker.reranker_timeout_s,
            "misconfigured": gateway.rerank.misconfigured,
        },
        "limits": {
            "query_chars": MAX_QUERY_CHARS,
            "top_k": MAX_TOP_K,
            "default_top_k": settings.reranker.reranker_top_k,
            "sub_queries": MAX_SUB_QUERIES,
            "scopes": MAX_SCOPES,
            "deadline_ms": int(settings.time.search_deadline_s * 1000),
            "filterable_fields": list(settings.search.filterable_fields),
            "retrieval_depth": settings.search.retrieval_depth,
        },
        "fallback_reasons": [reason.value for reason in FallbackReason],
        "degraded": [item.value for item in Degraded],
    }
