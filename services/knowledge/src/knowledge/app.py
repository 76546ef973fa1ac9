"""Puts the gateway together: adapters behind ports, one lifespan that opens and closes everything, one app."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import structlog
from fastapi import FastAPI

from knowledge.adapters.embedded_export import EmbeddedExport
from knowledge.adapters.embedding_http import HttpEmbedder
from knowledge.adapters.jwks import JwksKeys
from knowledge.adapters.rerankers.sidecar import SidecarReranker
from knowledge.api import documents, operations, search, stream
from knowledge.api.dependencies import Gateway
from knowledge.api.errors import install_error_handlers
from knowledge.auth import Authenticator
from knowledge.deadline import Clock
from knowledge.errors import BackendError, EmbeddingError, FallbackReason, IndexMismatch, RerankError
from knowledge.ingest.ingestor import Ingestor
from knowledge.lexicon import read_lexicon
from knowledge.pipeline import Pipeline
from knowledge.ports import Backend, Embedder, Export, Reindexing, Reranker, SigningKeys
from knowledge.rerank import RerankStage
from knowledge.retrieve import Retriever
from knowledge.settings import RerankerSettings, SearchSettings, Settings, load_settings
from knowledge.telemetry import SERVICE, Instruments, begin_request_span
from servicekit.health import Readiness, probe_routes
from servicekit.limits import BodyLimit
from servicekit.logs import AccessLog
from servicekit.problems import install_problem_handlers
from servicekit.server import serve
from servicekit.settings import ConfigurationError
from servicekit.telemetry import Telemetry, instrument, set_up_telemetry

DISTRIBUTION = "knowledge-gateway"
DEFAULT_PORT = 8000
DRAIN_S = 5
"""Above the deadline, for requests in flight at the end: with the five seconds before the signal the chart's ten."""
MAX_SEARCH_BYTES = 1024 * 1024
MAX_DOCUMENTS_BYTES = 1024 * 1024 * 1024
"""Of NDJSON, which is read line by line; JSON has a smaller limit of its own."""
START_TIMEOUT_S = 3.0
UPKEEP_S = 5.0

log = structlog.get_logger(SERVICE)


@dataclass(slots=True)
class Adapters:
    """The outside, behind its ports. Tests and commands put in their own."""

    backend: Backend
    embedder: Embedder
    reranker: Reranker | None
    keys: SigningKeys | None

    async def aclose(self) -> None:
        """Close all of them."""
        for adapter in (self.backend, self.embedder, self.reranker, self.keys):
            if adapter is not None:
                await adapter.aclose()


def new_backend(search: SearchSettings, telemetry: Telemetry) -> Backend:
    """The search backend that the settings name."""
    tracer = telemetry.tracer(SERVICE)
    lexicon = read_lexicon(search.german_compound_words_file, search.synonyms_file)
    if search.search_backend == "embedded":
        from knowledge.adapters.embedded import EmbeddedBackend

        return EmbeddedBackend(search.embedded_path, tracer=tracer, lexicon=lexicon)
    from knowledge.adapters.opensearch import OpenSearchBackend

    return OpenSearchBackend(
        search.opensearch_url,
        search.opensearch_index,
        tracer=tracer,
        lexicon=lexicon,
        replicas=search.opensearch_replicas,
        shards=search.opensearch_shards,
        **_access(search),
    )


def _access(search: SearchSettings) -> dict[str, Any]:
    """How a cluster is called: who calls, whom it trusts, over how many connections."""
    certificate, key = search.opensearch_client_cert_file, search.opensearch_client_key_file
    return {
        "username": search.opensearch_username or None,
        "password": search.opensearch_password.get_secret_value() or None,
        "ca_file": search.opensearch_ca_file,
        "client_certificate": (certificate, key) if certificate and key else None,
        "pool_size": search.max_concurrent_searches,
    }


def new_reindexing(search: SearchSettings) -> Reindexing:
    """The indices behind the searched one, of the OpenSearch backend."""
    from knowledge.adapters.analysis import compound_words
    from knowledge.adapters.opensearch_client import connect
    from knowledge.adapters.opensearch_reindexing import OpenSearchReindexing

    lexicon = read_lexicon(search.german_compound_words_file, None)
    return OpenSearchReindexing(
        connect(search.opensearch_url, **_access(search)),
        search.opensearch_index,
        replicas=search.opensearch_replicas,
        compounds=compound_words(lexicon.compound_words),
        shards=search.opensearch_shards,
    )


def open_export(path: Path) -> Export:
    """Everything that an embedded index holds, for another backend."""
    return EmbeddedExport(path)


def new_embedder(search: SearchSettings, telemetry: Telemetry) -> Embedder:
    """The embedding-service's client."""
    return HttpEmbedder(search.embedding_url, tracer=telemetry.tracer(SERVICE))


def new_reranker(settings: RerankerSettings) -> Reranker | None:
    """The rerank provider; None where none is wanted or configured, so that nothing can be called."""
    if not settings.reranker_enabled or settings.reranker_provider == "none" or not settings.reranker_url:
        return None
    key = settings.reranker_api_key.get_secret_value()
    return SidecarReranker(settings.reranker_url, api_key=key, model=settings.reranker_model)


def new_adapters(settings: Settings, telemetry: Telemetry, clock: Clock) -> Adapters:
    """All adapters that the settings ask for."""
    return Adapters(
        backend=new_backend(settings.search, telemetry),
        embedder=new_embedder(settings.search, telemetry),
        reranker=new_reranker(settings.reranker),
        keys=JwksKeys(settings.identity.auth_jwks_url, clock) if settings.identity.auth_jwks_url else None,
    )


def new_gateway(settings: Settings, adapters: Adapters, telemetry: Telemetry, clock: Clock) -> Gateway:
    """The gateway's parts over the given adapters."""
    metrics = Instruments(telemetry.meter(SERVICE), telemetry.tracer(SERVICE))
    rerank = RerankStage(adapters.reranker, settings.reranker, metrics, clock)
    retriever = Retriever(
        adapters.backend,
        adapters.embedder,
        search=settings.search,
        time=settings.time,
        initial_k=settings.reranker.reranker_initial_k,
        metrics=metrics,
    )
    return Gateway(
        settings=settings,
        authenticator=Authenticator(settings.identity, adapters.keys),
        pipeline=Pipeline(retriever, rerank, search=settings.search, reranker=settings.reranker, metrics=metrics),
        rerank=rerank,
        store=adapters.backend,
        ingestor=Ingestor(
            adapters.backend,
            adapters.embedder,
            text_fields=settings.search.text_fields,
            info_timeout_s=settings.time.embedding_timeout_s,
            metrics=metrics,
        ),
        clock=clock,
    )


class Upkeep:
    """What is done at start and, until it succeeds, in the background: open the index, know the models, probe the reranker."""

    def __init__(self, gateway: Gateway, adapters: Adapters) -> None:
        self._gateway = gateway
        self._adapters = adapters
        self._index_open = False
        self._embedding_known = False
        self._reranker_probed = adapters.reranker is None
        self.mismatch: str | None = None

    async def start(self) -> None:
        """First try. A definite mismatch or a latching answer stops the start; what is merely not there yet does not."""
        await self.round()
        if self.mismatch is not None:
            raise ConfigurationError(self.mismatch)
        if self._gateway.rerank.misconfigured:
            message = "The reranker at RERANKER_URL refuses this configuration (key, path or model). "
            raise ConfigurationError(message + "Correct RERANKER_API_KEY or RERANKER_MODEL, or set RERANKER_ENABLED=false.")

    async def run(self) -> None:
        """Go on until everything is known."""
        while not (self._index_open and self._embedding_known and self._reranker_probed):
            await asyncio.sleep(UPKEEP_S)
            await self.round()

    async def round(self) -> None:
        """Try once what is not done yet."""
        if not (self._index_open and self._embedding_known):
            await self._open_index()
        if not self._reranker_probed:
            await self._probe_reranker()

    async def _open_index(self) -> None:
        fingerprint, dimension = None, None
        try:
            info = await self._adapters.embedder.info(START_TIMEOUT_S)
            fingerprint, dimension = info["fingerprint"], int(info["dimension"])
            self._check_embedding_deadline(info.get("deadline_s"))
        except EmbeddingError as error:
            log.warning("embedding.not_ready", error=str(error))
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._adapters.backend.open(fingerprint=fingerprint, dimension=dimension)
        except IndexMismatch as error:
            self.mismatch = str(error)
            log.critical("index.mismatch", detail=self.mismatch)
        except (BackendError, TimeoutError) as error:
            log.warning("backend.not_ready", error=str(error) or type(error).__name__)
            return
        self._index_open, self._embedding_known = True, fingerprint is not None

    async def _probe_reranker(self) -> None:
        reason = await self._gateway.rerank.probe(START_TIMEOUT_S)
        if reason is None:
            self._reranker_probed = True
            await self._check_reranker_limits()
            log.info("reranker.ready")
        else:
            log.warning("reranker.not_ready", reason=reason.value)
            # From here the stage's own probe, every 30 s with a real search, finds out when it is right again.
            self._reranker_probed = reason is FallbackReason.MISCONFIGURED

    async def _check_reranker_limits(self) -> None:
        assert self._adapters.reranker is not None  # noqa: S101 - only a configured provider is probed
        settings = self._gateway.settings.reranker
        try:
            info = await self._adapters.reranker.info(START_TIMEOUT_S) or {}
        except RerankError as error:
            log.warning("reranker.info_unknown", reason=error.reason.value)
            return
        budget, deadline = info.get("scored_chars_budget"), info.get("deadline_s")
        if isinstance(budget, int) and 0 < budget < settings.rerank_scored_chars_budget:
            log.warning("reranker.budget_below_gateways", service=budget, gateway=settings.rerank_scored_chars_budget)
        if isinstance(deadline, int | float) and deadline >= settings.reranker_timeout_s:
            log.warning("deadlines.do_not_nest", inner="RERANK_DEADLINE_S", outer="RERANKER_TIMEOUT_S", inner_s=deadline)

    def _check_embedding_deadline(self, deadline: object) -> None:
        outer = self._gateway.settings.time.embedding_timeout_s
        if isinstance(deadline, int | float) and deadline >= outer:
            log.warning("deadlines.do_not_nest", inner="EMBEDDING_DEADLINE_S", outer="EMBEDDING_TIMEOUT_S", inner_s=deadline)


def create_app(
    settings: Settings, *, telemetry: Telemetry | None = None, adapters: Adapters | None = None, clock: Clock = time.monotonic
) -> FastAPI:
    """The ASGI app. Tests hand in adapters; otherwise the settings decide."""
    telemetry = telemetry or set_up_telemetry(SERVICE, DISTRIBUTION)
    adapters = adapters or new_adapters(settings, telemetry, clock)
    gateway = new_gateway(settings, adapters, telemetry, clock)
    upkeep = Upkeep(gateway, adapters)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await upkeep.start()
        task = asyncio.create_task(upkeep.run())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await adapters.aclose()
        telemetry.shutdown()

    async def readiness() -> Readiness:
        backend = await adapters.backend.ready()
        details = {"search_backend": backend, "mismatch": upkeep.mismatch, "reranker_misconfigured": gateway.rerank.misconfigured}
        return Readiness(backend and upkeep.mismatch is None, details)

    # No documentation pages: they would load scripts from elsewhere. /openapi.json has it all.
    app = FastAPI(title="Knowledge Gateway", version=version(DISTRIBUTION), lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.gateway = gateway
    install_problem_handlers(app)
    install_error_handlers(app)
    app.add_middleware(BodyLimit, max_bytes=MAX_SEARCH_BYTES, paths={"/documents": MAX_DOCUMENTS_BYTES})
    app.add_middleware(AccessLog)
    for router in (search.router, stream.router, documents.router, operations.router, probe_routes(readiness, telemetry.registry)):
        app.include_router(router)
    instrument(app, telemetry, begin_request_span)
    return app


def main() -> None:
    """Serve the gateway with the settings of the environment."""
    loaded: list[Settings] = []
    warnings: list[str] = []

    def log_level() -> str:
        settings, unknown = load_settings()
        loaded.append(settings)
        warnings.extend(unknown)
        return settings.process.log_level

    def app() -> FastAPI:
        for warning in warnings:
            log.warning("settings.unknown", detail=warning)
        return create_app(loaded[0])

    def grace_s() -> int:
        return math.ceil(loaded[0].time.search_deadline_s) + DRAIN_S

    serve(SERVICE, DEFAULT_PORT, log_level, app, grace_s=grace_s)
