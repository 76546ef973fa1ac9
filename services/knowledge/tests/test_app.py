"""Start, upkeep and end of the app, with what is not there yet and what never will be."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from knowledge.errors import FallbackReason
from services.knowledge.tests.fakes import FakeBackend, FakeEmbedder, FakeReranker, failing, score_all
from services.knowledge.tests.serving import CORPUS, served


@pytest.fixture
def quick_upkeep(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The upkeep tries again at once."""
    monkeypatch.setattr("knowledge.app.UPKEEP_S", 0.0)
    yield  # noqa: PT022 - undone by monkeypatch after the test


async def turns(number: int = 20) -> None:
    """Let everything that is ready go on."""
    for _ in range(number):
        await asyncio.sleep(0)


async def test_a_gateway_starts_while_nothing_else_is_there_and_recovers(quick_upkeep: None) -> None:
    """Backend, embedding-service and reranker may come later; each is found without a restart."""
    backend, embedder, reranker = FakeBackend(CORPUS), FakeEmbedder(), FakeReranker()
    backend.down = embedder.down = True
    reranker.probe_script = failing(FallbackReason.TRANSPORT)
    with capture_logs() as logs:
        async with served(backend, embedder=embedder, reranker=reranker) as gateway:
            assert (await gateway.http.get("/health")).status_code == 200
            assert (await gateway.http.get("/ready")).status_code == 503
            backend.down = embedder.down = False
            reranker.probe_script = score_all
            await turns()
            assert (await gateway.http.get("/ready")).status_code == 200
            assert (await gateway.search()).json()["degraded"] == []
    assert any(line["event"] == "reranker.ready" for line in logs)


async def test_a_mismatch_that_is_found_later_makes_the_gateway_unready(quick_upkeep: None) -> None:
    """If the embedding-service turns out to run another model, the gateway says so and takes no traffic."""
    backend, embedder = FakeBackend(CORPUS), FakeEmbedder()
    embedder.down = True
    async with served(backend, embedder=embedder) as gateway:
        assert (await gateway.http.get("/ready")).status_code == 200
        backend.mismatch = "made for another model"
        embedder.down = False
        await turns()
        ready = await gateway.http.get("/ready")
        assert (ready.status_code, ready.json()["mismatch"]) == (503, "made for another model")


async def test_a_dead_model_service_does_not_make_the_gateway_unready() -> None:
    """Lexical answers are better than none."""
    embedder, reranker = FakeEmbedder(), FakeReranker()
    embedder.down = True
    reranker.probe_script = failing(FallbackReason.TRANSPORT)
    async with served(FakeBackend(CORPUS), embedder=embedder, reranker=reranker) as gateway:
        assert (await gateway.http.get("/ready")).status_code == 200


@pytest.mark.parametrize(
    ("facts", "event"),
    [
        ({"scored_chars_budget": 5000}, "reranker.budget_below_gateways"),
        ({"deadline_s": 27}, "deadlines.do_not_nest"),
        ({"deadline_s": 30}, "deadlines.do_not_nest"),
    ],
)
async def test_a_service_whose_limits_do_not_fit_is_a_warning(facts: dict[str, Any], event: str) -> None:
    """The gateway starts, and the log names both sides."""
    reranker = FakeReranker()
    reranker.facts = facts
    with capture_logs() as logs:
        async with served(FakeBackend(), reranker=reranker):
            pass
    assert event in [line["event"] for line in logs]


@pytest.mark.parametrize(
    "facts",
    [
        None,
        {},
        {"scored_chars_budget": 0, "deadline_s": 25},
        {"scored_chars_budget": 7500},
        {"scored_chars_budget": "?", "deadline_s": None},
    ],
)
async def test_a_service_whose_limits_fit_or_are_not_told_is_no_warning(facts: dict[str, Any] | None) -> None:
    """0 is no limit; an equal budget is enough."""
    reranker = FakeReranker()
    reranker.facts = facts
    with capture_logs() as logs:
        async with served(FakeBackend(), reranker=reranker):
            pass
    assert [line for line in logs if line["log_level"] == "warning"] == []


async def test_an_embedding_deadline_that_does_not_nest_is_a_warning() -> None:
    """EMBEDDING_DEADLINE_S of the service must be below EMBEDDING_TIMEOUT_S."""
    embedder = FakeEmbedder()
    embedder.facts["deadline_s"] = 5
    with capture_logs() as logs:
        async with served(FakeBackend(), embedder=embedder):
            pass
    [line] = [line for line in logs if line["event"] == "deadlines.do_not_nest"]
    assert (line["inner"], line["outer"]) == ("EMBEDDING_DEADLINE_S", "EMBEDDING_TIMEOUT_S")


async def test_searches_are_not_held_up_by_the_upkeep(quick_upkeep: None) -> None:
    """A search during the start-up of the reranker is answered."""
    reranker = FakeReranker()
    reranker.probe_script = failing(FallbackReason.LOADING, 503)
    async with served(FakeBackend(CORPUS), reranker=reranker) as gateway:
        await turns()
        assert (await gateway.search()).status_code == 200
