"""The routes that every service has: /health (alive, asks nobody), /ready and /metrics."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

PROBE_PATHS = "health,ready,metrics"


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the service can do its own job, with details for the platform engineer."""

    ready: bool
    details: Mapping[str, Any] = field(default_factory=dict)


def probe_routes(readiness: Callable[[], Awaitable[Readiness]], registry: CollectorRegistry) -> APIRouter:
    """The router with the probes and the Prometheus page of `registry`."""
    router = APIRouter(tags=["operations"])

    @router.get("/health", summary="Alive; asks nobody")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @router.get("/ready", summary="Able to do its job", responses={503: {"description": "not ready, with the reason"}})
    async def ready() -> JSONResponse:
        state = await readiness()
        body = {"status": "ready" if state.ready else "not_ready", **state.details}
        return JSONResponse(body, 200 if state.ready else 503)

    @router.get("/metrics", summary="Prometheus text format", response_class=Response)
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return router
