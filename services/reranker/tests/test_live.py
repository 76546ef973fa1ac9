"""The true service on a socket with real weights: deadlines, callers that go away, a stop while requests are in flight."""

import asyncio
import json
import shutil
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from examples.demo.services import running, start
from modelkit import ensure
from modelkit.store import sha256_of
from reranker.app import create_app, load_scheduler
from reranker.scheduler import Scheduler
from reranker.settings import RerankSettings

pytestmark = pytest.mark.models

MODEL = "ms-marco-minilm-l12-v2"
LATE_S = 2.0
"""How much later than its deadline an answer may come on a machine that does other things too."""
SENTENCE = "Water the monstera about once a week, less often in winter, and let the soil dry out in between. "


def passages(count: int, name: str, chars: int = 500) -> list[str]:
    """Passages that nobody has asked about before."""
    return [(f"{name} {number}: " + SENTENCE * (chars // len(SENTENCE) + 1))[:chars] for number in range(count)]


@dataclass(frozen=True, slots=True)
class Live:
    """A started service."""

    port: int
    client: httpx.AsyncClient
    scheduler: Scheduler

    async def rerank(self, documents: list[str], **body: Any) -> httpx.Response:
        """POST /rerank."""
        return await self.client.post("/rerank", json={"query": "how often do I water a monstera", "documents": documents, **body})

    async def leave(self, documents: list[str]) -> None:
        """Ask, and go away before the answer."""
        _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        content = json.dumps({"query": "how often do I water a monstera", "documents": documents}).encode()
        head = f"POST /rerank HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content)
        await writer.drain()
        await asyncio.sleep(0.3)
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def live() -> AsyncIterator[Live]:
    """The service on a free port, in this process: its time on the CPU can be read here."""
    settings = RerankSettings(rerank_model=MODEL, rerank_scored_chars_budget=0)
    app = create_app(settings, pytest.fail, load=load_scheduler)
    bound = socket.create_server(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    serving = asyncio.create_task(server.serve([bound]))
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            assert (await client.get("/health")).status_code == 200
            await asyncio.to_thread(app.state.service.scheduler.join)
            yield Live(port, client, app.state.service.scheduler.get())
    finally:
        server.should_exit = True
        await serving


async def test_a_quarter_and_a_half_of_the_time_give_a_prefix_in_time() -> None:
    """More time, more scores; the answer is there at the deadline."""
    async with live() as service:
        started = time.monotonic()
        assert (await service.rerank(passages(40, "whole"))).json()["status"] == "complete"
        whole_s = time.monotonic() - started
        scored = []
        for share in (0.25, 0.5):
            started = time.monotonic()
            deadline_ms = int(share * whole_s * 1000)
            response = await service.rerank(passages(40, f"share {share}"), deadline_ms=deadline_ms, allow_partial=True)
            assert time.monotonic() - started < deadline_ms / 1000 + LATE_S
            assert response.status_code == 200
            indices = sorted(result["index"] for result in response.json()["results"])
            assert indices == list(range(len(indices)))
            scored.append(len(indices))
    assert min(scored) >= 2


async def test_fifty_callers_that_go_away_leave_nothing_running() -> None:
    """One second later the service does nothing, and the next caller is served."""
    async with live() as service:
        await asyncio.gather(*(service.leave(passages(20, f"caller {n}", 1500)) for n in range(50)))
        await asyncio.sleep(1)
        assert service.scheduler.waiting == 0
        before = time.process_time()
        await asyncio.sleep(1)
        assert time.process_time() - before < 0.1
        assert (await service.rerank(passages(2, "after"))).json()["status"] == "complete"


async def test_a_known_question_is_answered_without_the_model() -> None:
    """The second answer has the scores of the first, to the last bit, and no pair is run for it."""
    async with live() as service:
        first, again = [(await service.rerank(passages(15, "known"))).json() for _ in range(2)]
        metrics = (await service.client.get("/metrics")).text
    assert first["results"] == again["results"]
    runs = next(line for line in metrics.splitlines() if line.startswith("reranker_pair_duration_seconds_count"))
    assert float(runs.rsplit(" ", 1)[1]) == 15
    assert 'reranker_cache_name="pairs",reranker_cache_result="hit"' in metrics


def test_a_stop_lets_requests_in_flight_end(tmp_path: Path) -> None:
    """SIGTERM while a request runs: it is answered in full, then the process ends in order."""

    async def ask_and_stop() -> tuple[httpx.Response, int]:
        async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
            asking = asyncio.create_task(client.post("/rerank", json={"query": "monstera", "documents": passages(60, "last")}))
            await asyncio.sleep(0.3)
            service.process.send_signal(signal.SIGTERM)
            response = await asking
        return response, await asyncio.to_thread(service.process.wait, 30)

    settings = {"RERANK_MODEL": MODEL, "RERANK_SCORED_CHARS_BUDGET": "0"}
    with running("knowledge-reranker", settings, tmp_path) as service:
        response, status = asyncio.run(ask_and_stop())
    assert (response.status_code, response.json()["status"], len(response.json()["results"])) == (200, "complete", 60)
    assert status == 0


def test_a_damaged_model_ends_the_process(tmp_path: Path) -> None:
    """With a sentence that names the file and both hashes, and status 3; it never serves."""
    files = ensure(MODEL)
    cache = tmp_path / "cache"
    folder = cache / files.folder.relative_to(files.folder.parents[1])
    shutil.copytree(files.folder, folder)
    damaged = folder / files.model.name
    with damaged.open("r+b") as file:
        file.seek(1_000_000)
        file.write(b"damage")
    service = start("knowledge-reranker", {"RERANK_MODEL": MODEL, "MODEL_CACHE_DIR": str(cache)}, tmp_path / "run")
    try:
        assert service.process.wait(60) == 3
    finally:
        service.stop()
    log = service.log.read_text()
    sentence = next(line for line in log.splitlines() if line.startswith("knowledge-reranker: "))
    assert str(damaged) in sentence
    assert sha256_of(files.model) in sentence
    assert sha256_of(damaged) in sentence


async def test_five_passages_do_not_wait_for_a_hundred() -> None:
    """They are answered while some of the hundred still wait."""
    async with live() as service:
        long = asyncio.create_task(service.rerank(passages(100, "long", 300)))
        await asyncio.to_thread(_wait_until, lambda: service.scheduler.waiting > 70)
        response = await service.rerank(passages(5, "short"))
        waiting = service.scheduler.waiting
        assert (response.status_code, len(response.json()["results"])) == (200, 5)
        assert waiting > 10
        assert len((await long).json()["results"]) == 100


def _wait_until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)
