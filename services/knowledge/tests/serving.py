"""The gateway's parts and its whole app over fakes, with tokens for it: in process, without a socket."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import jwt
from fastapi import FastAPI
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from knowledge.app import DISTRIBUTION, Adapters, create_app
from knowledge.deadline import Clock, Deadline
from knowledge.models import Answer, Identity, Query, Scope
from knowledge.pipeline import Pipeline
from knowledge.ports import Backend, Embedder, Reranker
from knowledge.rerank import RerankStage
from knowledge.retrieve import Retriever
from knowledge.settings import IdentitySettings, ProcessSettings, RerankerSettings, SearchSettings, Settings, TimeSettings
from knowledge.telemetry import SERVICE, Instruments
from servicekit.telemetry import Telemetry, set_up_telemetry
from services.knowledge.tests.fakes import FakeBackend, FakeClock, FakeEmbedder, FakeReranker, record

SECRET = "a-secret-of-thirty-two-bytes-or-more"
NOW = 1_750_000_000
FAR = 4_000_000_000
CORPUS = [record(f"{number:02}", " ".join(["wasser"] * (20 - number) + ["licht"] * number)) for number in range(20)]
"""Twenty passages; both legs put 00 first and 19 last for `wasser`."""
READER = Identity("acme", "ada", frozenset({"reader"}))


def settings(**given: Any) -> Settings:
    """Settings of a gateway in development mode with a shared secret; `given` is by field name."""
    base = {"auth_jwt_secret": SECRET, "knowledge_env": "development", **given}

    def group(kind: type) -> Any:
        return kind(**{name: value for name, value in base.items() if name in kind.model_fields})

    kinds = (SearchSettings, RerankerSettings, TimeSettings, IdentitySettings, ProcessSettings)
    unknown = set(given).difference(*(kind.model_fields for kind in kinds))
    assert not unknown, unknown
    return Settings(*(group(kind) for kind in kinds))


def new_telemetry() -> tuple[Telemetry, InMemorySpanExporter, InMemoryMetricReader]:
    """Telemetry that a test can read."""
    reader, exporter = InMemoryMetricReader(), InMemorySpanExporter()
    telemetry = set_up_telemetry(SERVICE, DISTRIBUTION, readers=[reader])
    telemetry.tracer_provider.add_span_processor(SimpleSpanProcessor(exporter))
    return telemetry, exporter, reader


def points(reader: InMemoryMetricReader, name: str) -> list[tuple[dict[str, Any], Any]]:
    """(attributes, point) of all data points of one metric."""
    data = reader.get_metrics_data()
    metrics = [
        metric
        for resource in (data.resource_metrics if data else [])
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
    ]
    return [(dict(point.attributes or {}), point) for metric in metrics for point in metric.data.data_points]


def instruments() -> Instruments:
    """Metrics that nobody reads."""
    return Instruments(set_up_telemetry(SERVICE, DISTRIBUTION).meter(SERVICE))


INSTRUMENTS = instruments()


def new_stage(reranker: Reranker | None, clock: Clock, *, metrics: Instruments = INSTRUMENTS, **given: Any) -> RerankStage:
    """The rerank stage over a reranker."""
    return RerankStage(reranker, settings(**given).reranker, metrics, clock)


def new_pipeline(
    backend: FakeBackend,
    reranker: Reranker | None = None,
    *,
    clock: Clock | None = None,
    embedder: FakeEmbedder | None = None,
    stage: RerankStage | None = None,
    **given: Any,
) -> Pipeline:
    """The pipeline over fakes."""
    chosen = settings(**given)
    retriever = Retriever(
        backend,
        embedder or FakeEmbedder(),
        search=chosen.search,
        time=chosen.time,
        initial_k=chosen.reranker.reranker_initial_k,
        metrics=INSTRUMENTS,
    )
    stage = stage or RerankStage(reranker, chosen.reranker, INSTRUMENTS, clock or FakeClock())
    return Pipeline(retriever, stage, search=chosen.search, reranker=chosen.reranker, metrics=INSTRUMENTS)


def query(text: str = "wasser", *, top_k: int = 10, scopes: tuple[Scope, ...] = (), **given: Any) -> Query:
    """A query; without scopes it has the one unnamed scope."""
    floor, filters = given.pop("min_similarity", None), given.pop("filters", ())
    given.setdefault("sub_queries", ())
    return Query(text, top_k=top_k, scopes=scopes or (Scope("", filters, top_k, floor),), scoped=bool(scopes), **given)


async def search(
    pipeline: Pipeline, asked: Query, identity: Identity = READER, *, seconds: float = 30.0, clock: Clock | None = None
) -> Answer:
    """One search with a deadline on a clock that stands still, unless another is given."""
    return await pipeline.search(asked, identity, Deadline.after(seconds, clock or FakeClock()))


def token(*, roles: Any = ("reader",), tenant: Any = "acme", subject: Any = "ada", **claims: Any) -> str:
    """An HS256 token that holds until long after this test; a claim given as None is left out."""
    listed = list(roles) if isinstance(roles, tuple) else roles
    whole = {"sub": subject, "tenant": tenant, "roles": listed, "exp": FAR, **claims}
    return jwt.encode({name: value for name, value in whole.items() if value is not None}, SECRET, algorithm="HS256")


def bearer(**given: Any) -> dict[str, str]:
    """The header with a token."""
    return {"Authorization": f"Bearer {token(**given)}"}


@dataclass(slots=True)
class Served:
    """A running app with its fakes and what it said."""

    app: FastAPI
    http: httpx.AsyncClient
    backend: FakeBackend
    embedder: Embedder
    reranker: FakeReranker
    spans: InMemorySpanExporter
    metrics: InMemoryMetricReader
    telemetry: Telemetry

    async def search(self, body: Mapping[str, Any] | None = None, /, **fields: Any) -> httpx.Response:
        """`POST /search` as a reader."""
        return await self.http.post("/search", json={"query": "wasser", **(body or {}), **fields}, headers=bearer())


@asynccontextmanager
async def served(
    backend: FakeBackend | None = None,
    *,
    reranker: Any = None,
    new_reranker: Callable[[Telemetry], Reranker] | None = None,
    new_embedder: Callable[[Telemetry], Embedder] | None = None,
    embedder: FakeEmbedder | None = None,
    keys: Any = None,
    clock: Clock | None = None,
    raise_app_exceptions: bool = False,
    **given: Any,
) -> AsyncIterator[Served]:
    """The app with its lifespan entered."""
    telemetry, spans, metrics = new_telemetry()
    backend, fake = backend or FakeBackend(), reranker if isinstance(reranker, FakeReranker) else FakeReranker()
    asked = new_reranker(telemetry) if new_reranker else (None if reranker is False else fake)
    embeds = new_embedder(telemetry) if new_embedder else (embedder or FakeEmbedder())
    outside: Backend = backend
    options = {} if clock is None else {"clock": clock}
    app = create_app(settings(**given), telemetry=telemetry, adapters=Adapters(outside, embeds, asked, keys), **options)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=raise_app_exceptions)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
            yield Served(app, http, backend, embeds, fake, spans, metrics, telemetry)
