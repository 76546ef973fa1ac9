"""Puts the service together."""

import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version

import structlog
from fastapi import FastAPI

from modelkit import Background, Cpus, Gate, LineProgress, ModelFiles, ModelSpec, UnknownModelError, files_to_serve, manifest, usable_cpus
from modelkit.serving import Arrival, Clock, install_not_served, run_model_service
from reranker import telemetry, wire
from reranker.api import router
from reranker.cache import PassageCache, score_cache
from reranker.cost import CostModel
from reranker.model import Model
from reranker.scheduler import Observer, Scheduler
from reranker.schemas import MAX_BODY_BYTES, Info
from reranker.scorer import open_scorer
from reranker.service import MAX_CHARS_IN_FLIGHT, MAX_IN_FLIGHT, Service
from reranker.settings import NEIGHBOURS, PREFIXES, RerankSettings
from reranker.warmup import warm_up
from servicekit.health import Readiness, probe_routes
from servicekit.limits import BodyLimit
from servicekit.logs import AccessLog
from servicekit.problems import install_problem_handlers
from servicekit.settings import ConfigurationError, load_group, suggest_unknown
from servicekit.telemetry import instrument, set_up_telemetry

DEFAULT_PORT = 8081
DRAIN_S = 1
"""Above the deadline, for requests in flight at the end."""

Load = Callable[[RerankSettings, Observer], Scheduler]

log = structlog.get_logger(telemetry.SERVICE)


def load_scheduler(settings: RerankSettings, observer: Observer) -> Scheduler:
    """Fetch, verify, open and warm up the model, at the precision that was asked for or is best here.

    Raises:
        ModelError: it cannot be had, is damaged, or scores wrongly on this machine.
    """
    progress = LineProgress(lambda line: log.info("model", detail=line))
    files = files_to_serve(settings.rerank_model, settings.rerank_precision, settings.model_cache_dir, progress)
    small = settings.rerank_cascade_model
    small_files = files_to_serve(small, "auto", settings.model_cache_dir, progress) if small else None
    return new_scheduler(files, usable_cpus(), settings, observer, small_files)


def new_scheduler(
    files: ModelFiles, cpus: Cpus, settings: RerankSettings, observer: Observer, small: ModelFiles | None = None
) -> Scheduler:
    """Open these files, and those of RERANK_CASCADE_MODEL, and warm them up."""
    return Scheduler(
        new_model(files, cpus, settings, observer),
        cpus.count,
        time.monotonic,
        cache=score_cache(settings.rerank_cache_entries),
        small=new_model(small, cpus, settings, observer.of(small.spec.id)) if small else None,
    )


def new_model(files: ModelFiles, cpus: Cpus, settings: RerankSettings, observer: Observer) -> Model:
    """Open one model and warm it up; it remembers passages of its own."""
    cost = CostModel()
    passages = PassageCache(settings.rerank_passage_cache_mb * 1_000_000, lambda hit: observer.lookup("passages", "hit" if hit else "miss"))
    scorer = open_scorer(files, cpus, passages)
    warm_up(scorer, cost, cpus.count)
    return Model(scorer, cost, observer, time.monotonic, (files.spec.id, files.revision, files.precision))


def model_spec(settings: RerankSettings) -> ModelSpec:
    """The manifest's entry for RERANK_MODEL, at RERANK_PRECISION.

    Raises:
        ConfigurationError: there is no such model, or it does not score pairs, or not at this precision; or the same of
            RERANK_CASCADE_MODEL, or it is RERANK_MODEL.
    """
    rerankers = manifest().of_kind("cross-encoder", "late-interaction")
    if settings.rerank_model not in rerankers:
        raise ConfigurationError(f"RERANK_MODEL: choose one of {', '.join(rerankers)}, or unset it to use the default.")
    others = [each for each in rerankers if each != settings.rerank_model]
    if settings.rerank_cascade_model not in ("", *others):
        raise ConfigurationError(f"RERANK_CASCADE_MODEL: choose one of {', '.join(others)}, or unset it to score in the order given.")
    spec = manifest().get(settings.rerank_model)
    if settings.rerank_precision in spec.offered:
        return spec
    try:
        spec.choose(settings.rerank_precision)
    except UnknownModelError as error:
        raise ConfigurationError(f"RERANK_PRECISION: {error}") from None
    return spec


def create_app(
    settings: RerankSettings,
    fail: Callable[[str], None],
    *,
    load: Load = load_scheduler,
    clock: Clock = time.monotonic,
) -> FastAPI:
    """The app; the model is loaded in the background once it starts.

    Args:
        settings: parsed settings.
        fail: ends the process with a sentence.
        load: gives the scheduler.
        clock: for deadlines.
    """
    spec = model_spec(settings)
    providers = set_up_telemetry(telemetry.SERVICE, "knowledge-reranker")
    meter = providers.meter(telemetry.SERVICE)
    instruments = telemetry.Instruments(
        meter,
        spec.id,
        waiting=lambda: background.get().waiting if background.ready else 0,
        backlog_s=lambda: background.get().backlog_s() if background.ready else 0.0,
    )
    background = Background(lambda: settled(app.state.service, load(settings, instruments)), fail)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if settings.rerank_scored_chars_budget == 0:
            log.warning("scored_chars_budget_off", detail="RERANK_SCORED_CHARS_BUDGET is 0: requests of any length are scored")
        background.start()
        yield
        if background.ready:
            background.get().close()
        providers.shutdown()

    async def readiness() -> Readiness:
        return Readiness(background.ready, {"model": spec.id})

    app = FastAPI(title=telemetry.SERVICE, version=version("knowledge-reranker"), lifespan=lifespan)
    app.state.service = Service(
        settings=settings,
        scheduler=background,
        info=service_info(spec, settings),
        instruments=instruments,
        clock=clock,
        gate=Gate(MAX_IN_FLIGHT, MAX_CHARS_IN_FLIGHT),
    )
    app.include_router(probe_routes(readiness, providers.registry))
    app.include_router(router)
    app.include_router(wire.router)
    install_problem_handlers(app)
    install_not_served(app)
    app.add_middleware(BodyLimit, max_bytes=MAX_BODY_BYTES)
    app.add_middleware(AccessLog)
    app.add_middleware(Arrival, clock=clock)
    instrument(app, providers)
    return app


def settled(service: Service, scheduler: Scheduler) -> Scheduler:
    """Let /info and every answer name what was loaded; called before anything is answered with it."""
    if scheduler.model.identity:
        _, revision, precision = scheduler.model.identity
        service.info = service.info.model_copy(update={"revision": revision, "precision": precision})
    return scheduler


def service_info(spec: ModelSpec, settings: RerankSettings) -> Info:
    """What /info says until the model is loaded, which may settle the precision."""
    cross = "cross-encoder" in spec.kinds
    revisions = {str(precision): chosen.revision for precision, chosen in spec.precisions.items()}
    return Info(
        service=telemetry.SERVICE,
        version=version("knowledge-reranker"),
        model=spec.id,
        revision=revisions.get(settings.rerank_precision, next(iter(revisions.values()))),
        kind="cross-encoder" if cross else "late-interaction",
        precision=settings.rerank_precision,
        score_kind="probability" if cross else "opaque",
        deadline_s=settings.rerank_deadline_s,
        scored_chars_budget=settings.rerank_scored_chars_budget,
        cascade_model=settings.rerank_cascade_model,
        settled_after=settings.rerank_settled_after,
    )


def _create(fail: Callable[[str], None]) -> FastAPI:
    neighbours = tuple(f"unknown setting {name}" for name in NEIGHBOURS)
    for warning in suggest_unknown([RerankSettings], PREFIXES):
        if not warning.startswith(neighbours):
            log.warning("unknown_setting", detail=warning)
    return create_app(load_group(RerankSettings), fail)


def main() -> None:
    """The command `knowledge-reranker`."""

    def grace_s() -> int:
        return math.ceil(load_group(RerankSettings).rerank_deadline_s) + DRAIN_S

    run_model_service(telemetry.SERVICE, DEFAULT_PORT, lambda: load_group(RerankSettings).log_level, _create, grace_s=grace_s)
