"""What is measured of the reranker-service, each figure as a ratio within its own run or as a promise kept or broken."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx

from examples.demo.services import Service, start, wait_ready
from tests.load.figures import MeasurementFailed, SideBySide, quantile
from tests.load.rerank import peers
from tests.load.rerank.seed import PaddedBatch
from tests.load.rerank.texts import Asked, Texts

NAME = "knowledge-reranker"
SERVE = Path(__file__).with_name("serve.py")
Advance = Callable[[], None]
SETTLE_S = 0.5
"""Before each side's turn: threads of the one before may spin for a while after its last run."""


@contextmanager
def only_cores(count: int) -> Iterator[None]:
    """What is started meanwhile may use so many cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def reranker(folder: Path, settings: Mapping[str, str], command: Sequence[str] = ()) -> Iterator[Service]:
    """The service as a process, ready; its budget is off, so that peers can be given what they are given."""
    service = start(NAME, {"RERANK_SCORED_CHARS_BUDGET": "0", **settings}, folder, command=command)
    try:
        wait_ready(service, 300)
        yield service
    finally:
        service.stop()


async def ask(client: httpx.AsyncClient, url: str, asked: Asked, **more: Any) -> httpx.Response:
    """One POST /rerank."""
    return await client.post(f"{url}/rerank", json={"query": asked.query, "documents": asked.documents, **more})


def scored(response: httpx.Response) -> int:
    """How many passages have a score; all or an error."""
    if response.status_code != 200:
        raise MeasurementFailed(f"/rerank answered {response.status_code}: {response.text[:200]}")
    return len(response.json()["results"])


def new_client() -> httpx.AsyncClient:
    """Without any limit that could be the bottleneck."""
    limits = httpx.Limits(max_connections=200, max_keepalive_connections=200)
    return httpx.AsyncClient(timeout=120, trust_env=False, limits=limits)


async def against_seed(url: str, batch: PaddedBatch, texts: Texts, rounds: int, advance: Advance) -> SideBySide:
    """Each request by the service (one pair a run) and by one padded fp32 batch, in turns."""
    found = SideBySide()
    async with new_client() as client:
        for _ in range(rounds):
            asked = texts.equal()
            await asyncio.sleep(SETTLE_S)
            started = perf_counter()
            scored(await ask(client, url, asked))
            found.gateway.append(perf_counter() - started)
            await asyncio.sleep(SETTLE_S)
            started = perf_counter()
            batch.rank(asked.query, asked.documents)
            found.parts.append(perf_counter() - started)
            advance()
    return found


@dataclass(slots=True)
class AgainstPeers:
    """Seconds for the same requests: ours over HTTP by precision, each peer's by its own clock."""

    ours: dict[str, list[float]] = field(default_factory=dict)
    peers: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, precision: str, peer: str) -> float:
        """Our throughput over the peer's."""
        return sum(self.peers[peer]) / sum(self.ours[precision])


async def against_peers(
    urls: Mapping[str, str], running: Sequence[peers.Peer], make: Callable[[], Asked], rounds: int, advance: Advance
) -> AgainstPeers:
    """All in turns, in an order left to chance."""
    found = AgainstPeers({precision: [] for precision in urls}, {peer.name: [] for peer in running})
    async with new_client() as client:
        for _ in range(rounds):
            asked = make()
            sides: list[peers.Peer | str] = [*urls, *running]
            random.shuffle(sides)
            for side in sides:
                await asyncio.sleep(SETTLE_S)
                if isinstance(side, str):
                    started = perf_counter()
                    scored(await ask(client, urls[side], asked))
                    found.ours[side].append(perf_counter() - started)
                else:
                    found.peers[side.name].append(await asyncio.to_thread(side.seconds, asked))
            advance()
    return found


@dataclass(slots=True)
class Deadlines:
    """What came of deadlines that are shares of the whole time."""

    whole_s: list[float] = field(default_factory=list)
    scored: dict[float, list[int]] = field(default_factory=dict)
    late_ms: list[float] = field(default_factory=list)


async def at_deadlines(url: str, texts: Texts, rounds: int, advance: Advance) -> Deadlines:
    """The whole first, then a quarter and a half of its time, alone on the service."""
    found = Deadlines(scored={0.25: [], 0.5: [], 0.75: []})
    async with new_client() as client:
        for _ in range(rounds):
            started = perf_counter()
            scored(await ask(client, url, texts.equal()))
            found.whole_s.append(perf_counter() - started)
        whole = quantile(found.whole_s, 0.5)
        for _ in range(rounds):
            for share, counts in found.scored.items():
                deadline_ms = max(1, int(whole * share * 1000))
                started = perf_counter()
                response = await ask(client, url, texts.equal(), deadline_ms=deadline_ms, allow_partial=True)
                found.late_ms.append((perf_counter() - started) * 1000 - deadline_ms)
                counts.append(len(response.json().get("results", ())))
            advance()
    return found


@dataclass(slots=True)
class Overload:
    """What became of open-loop requests at a multiple of what the service can do."""

    times: float
    asked: int = 0
    refused: int = 0
    served: int = 0
    broken: int = 0
    """Accepted, and answered with no scores or after the deadline."""
    late_ms: list[float] = field(default_factory=list)


async def overloaded(url: str, texts: Texts, times: float, seconds: float, deadline_s: float, advance: Advance) -> Overload:
    """Requests come at `times` the measured rate, whether or not others were answered."""
    found = Overload(times)
    async with new_client() as client:
        alone = []
        for _ in range(5):
            started = perf_counter()
            scored(await ask(client, url, texts.equal()))
            alone.append(perf_counter() - started)
        pause = quantile(alone, 0.5) / times
        tasks = set()
        began = perf_counter()
        while perf_counter() - began < seconds:
            tasks.add(asyncio.create_task(_one(client, url, texts.equal(), deadline_s, found)))
            await asyncio.sleep(pause)
            advance()
        await asyncio.gather(*tasks)
    return found


async def _one(client: httpx.AsyncClient, url: str, asked: Asked, deadline_s: float, found: Overload) -> None:
    started = perf_counter()
    response = await ask(client, url, asked, deadline_ms=int(deadline_s * 1000))
    late_ms = (perf_counter() - started - deadline_s) * 1000
    found.asked += 1
    if response.status_code == 429:
        found.refused += 1
        return
    found.late_ms.append(late_ms)
    if response.status_code == 200:
        found.served += 1
    else:
        found.broken += 1


async def repeated(url: str, texts: Texts, rounds: int) -> list[float]:
    """Milliseconds of the same request asked again."""
    found = []
    async with new_client() as client:
        for _ in range(rounds):
            asked = texts.equal()
            scored(await ask(client, url, asked))
            started = perf_counter()
            scored(await ask(client, url, asked))
            found.append((perf_counter() - started) * 1000)
    return found


async def latency(url: str, texts: Texts, passages: int, rounds: int) -> float:
    """Median seconds of so many passages."""
    async with new_client() as client:
        found = []
        for _ in range(rounds):
            asked = texts.equal(passages)
            started = perf_counter()
            scored(await ask(client, url, asked))
            found.append(perf_counter() - started)
    return quantile(found, 0.5)


def precision_of(service: Service) -> str:
    """What it runs at."""
    with httpx.Client(trust_env=False) as client:
        return str(client.get(f"{service.url}/info").json()["precision"])


def peak_mb(service: Service) -> float | None:
    """The peak of resident memory; None where the system does not tell."""
    status = Path(f"/proc/{service.process.pid}/status")
    if not status.exists():
        return None
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6


@contextmanager
def all_peers(cache: Path, say: Callable[[str], None]) -> Iterator[list[peers.Peer]]:
    """Every peer, started."""
    with ExitStack() as stack:
        yield [stack.enter_context(peers.running(name, cache, say)) for name in peers.PEERS]
