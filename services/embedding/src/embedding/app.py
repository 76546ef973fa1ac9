"""Puts the service together."""

import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version

import structlog
from fastapi import FastAPI

from embedding import telemetry
from embedding.api import MAX_IN_FLIGHT, Service, router
from embedding.engine import Engine, fingerprint
from embedding.schemas import MAX_BODY_BYTES, Info
from embedding.settings import NEIGHBOURS, PREFIXES, EmbeddingSettings
from modelkit import Background, Encoder, Gate, LineProgress, ModelSpec, UnknownModelError, ensure, manifest, usable_cpus
from modelkit.serving import Arrival, Clock, install_not_served, run_model_service
from servicekit.health import Readiness, probe_routes
from servicekit.limits import BodyLimit
from servicekit.logs import AccessLog
from servicekit.problems import install_problem_handlers
from servicekit.settings import ConfigurationError, load_group, suggest_unknown
from servicekit.telemetry import instrument, set_up_telemetry

DEFAULT_PORT = 8080
DRAIN_S = 1
"""Above the deadline, for requests in flight at the end."""
WARM_UP = "Wie oft braucht die Monstera Wasser? "

log = structlog.get_logger(telemetry.SERVICE)


def load_engine(settings: EmbeddingSettings) -> Engine:
    """Fetch, verify, open and warm up the model.

    Raises:
        ModelError: it cannot be had, or is damaged.
    """
    files = ensure(settings.embedding_model, settings.model_cache_dir, LineProgress(lambda line: log.info("model", detail=line)))
    cpus = usable_cpus()
    encoder = Encoder(files, cpus)
    for text in (WARM_UP, WARM_UP * 100):  # a short one, and one that fills the window
        encoder.embed(text, "passage")
    return Engine(encoder, cpus.count)


def model_spec(settings: EmbeddingSettings) -> ModelSpec:
    """The manifest's entry for EMBEDDING_MODEL.

    Raises:
        ConfigurationError: there is no such embedding model.
    """
    try:
        spec = manifest().get(settings.embedding_model)
    except UnknownModelError as error:
        raise ConfigurationError(f"EMBEDDING_MODEL: {error} Choose one of them, or unset it to use the default.") from None
    if "embedding" not in spec.kinds:
        there = ", ".join(manifest().of_kind("embedding"))
        raise ConfigurationError(f"EMBEDDING_MODEL: {spec.id} is no embedding model. Choose one of {there}, or unset it.")
    return spec


def create_app(
    settings: EmbeddingSettings,
    fail: Callable[[str], None],
    *,
    load: Callable[[EmbeddingSettings], Engine] = load_engine,
    clock: Clock = time.monotonic,
) -> FastAPI:
    """The app; the model is loaded in the background once it starts.

    Args:
        settings: parsed settings.
        fail: ends the process with a sentence.
        load: gives the engine.
        clock: for deadlines.
    """
    spec = model_spec(settings)
    providers = set_up_telemetry(telemetry.SERVICE, "knowledge-embedding")
    background = Background(lambda: load(settings), fail)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        background.start()
        yield
        if background.ready:
            background.get().close()
        providers.shutdown()

    async def readiness() -> Readiness:
        return Readiness(background.ready, {"model": spec.id})

    app = FastAPI(title=telemetry.SERVICE, version=version("knowledge-embedding"), lifespan=lifespan)
    app.state.service = Service(
        settings=settings,
        spec=spec,
        engine=background,
        info=service_info(spec, settings),
        instruments=telemetry.Instruments(providers.meter(telemetry.SERVICE), spec.id),
        clock=clock,
        gate=Gate(MAX_IN_FLIGHT),
    )
    app.include_router(probe_routes(readiness, providers.registry))
    app.include_router(router)
    install_problem_handlers(app)
    install_not_served(app)
    app.add_middleware(BodyLimit, max_bytes=MAX_BODY_BYTES)
    app.add_middleware(AccessLog)
    app.add_middleware(Arrival, clock=clock)
    instrument(app, providers)
    return app


def service_info(spec: ModelSpec, settings: EmbeddingSettings) -> Info:
    """What /info says."""
    precision = spec.choose("auto")
    return Info(
        service=telemetry.SERVICE,
        version=version("knowledge-embedding"),
        model=spec.id,
        revision=spec.precisions[precision].revision,
        precision=precision,
        pooling=spec.pooling or "mean",
        query_prefix=spec.query_prefix,
        passage_prefix=spec.passage_prefix,
        dimension=spec.dimension or 0,
        fingerprint=fingerprint(spec, precision),
        deadline_s=settings.embedding_deadline_s,
    )


def _create(fail: Callable[[str], None]) -> FastAPI:
    neighbours = tuple(f"unknown setting {name}" for name in NEIGHBOURS)
    for warning in suggest_unknown([EmbeddingSettings], PREFIXES):
        if not warning.startswith(neighbours):
            log.warning("unknown_setting", detail=warning)
    return create_app(load_group(EmbeddingSettings), fail)


def main() -> None:
    """The command `knowledge-embedding`."""

    def grace_s() -> int:
        return math.ceil(load_group(EmbeddingSettings).embedding_deadline_s) + DRAIN_S

    run_model_service(telemetry.SERVICE, DEFAULT_PORT, lambda: load_group(EmbeddingSettings).log_level, _create, grace_s=grace_s)
