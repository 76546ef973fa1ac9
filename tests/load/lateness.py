"""How late after the deadline the answer is at the caller, when the reranker does not answer, is not ready, or is not there."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import httpx

from examples.demo.services import Service, start, wait_ready
from tests.load.faulty import FaultyReranker
from tests.load.figures import MeasurementFailed
from tests.load.overhead import TOP_K, questions
from tests.load.parts import new_client
from tests.load.stack import Stack

SILENT = {500: 20, 1000: 10, 2000: 5}
"""Searches a round by `deadline_ms`: each deadline has a caller of its own, and all take equally long."""

QUICK_DEADLINE_MS = 500
QUICK = 8
"""Searches a round for a reranker whose failure shows at once."""

CALM = 2
"""Searches with a healthy reranker before each failure, so that the breaker stays closed and the failure is met every time."""

WARM_UP_MS = 10_000
FALLBACK_HEADER = "X-Reranker-Fallback"


@dataclass(slots=True)
class Late:
    """What a caller with a deadline saw."""

    reranker: str
    deadline_ms: int
    seconds: list[float] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    without: list[float] = field(default_factory=list)
    """Seconds of the same searches without reranking, made in between; only where a failure shows at once."""

    @property
    def lateness_ms(self) -> list[float]:
        """Milliseconds after the deadline; negative before it."""
        return [one * 1000 - self.deadline_ms for one in self.seconds]


def steps(rounds: int) -> int:
    """How often `measure` calls `advance`."""
    return rounds * (sum(SILENT.values()) + 2 * QUICK)


class Caller:
    """Asks one gateway, question after question."""

    def __init__(self, client: httpx.AsyncClient, url: str, headers: dict[str, str], asked: Sequence[str]) -> None:
        self._client, self._url, self._headers, self._asked = client, f"{url}/search", headers, asked
        self._turn = 0

    async def search(self, deadline_ms: int, *, rerank: bool = True) -> tuple[float, str]:
        """Seconds until the whole answer was there, and the fallback reason, empty if there was none."""
        question = self._asked[self._turn % len(self._asked)]
        self._turn += 1
        body = {"query": question, "top_k": TOP_K, "rerank": rerank, "deadline_ms": deadline_ms}
        started = perf_counter()
        response = await self._client.post(self._url, json=body, headers=self._headers)
        seconds = perf_counter() - started
        if response.status_code != 200:
            raise MeasurementFailed(f"a search without a working reranker answered {response.status_code}: {response.text[:500]}")
        return seconds, response.headers.get(FALLBACK_HEADER, "")

    async def fall_back(self, late: Late) -> None:
        """A search that must fall back."""
        seconds, reason = await self.search(late.deadline_ms)
        if not reason:
            raise MeasurementFailed(f"a search did not fall back although its reranker {late.reranker}")
        late.seconds.append(seconds)
        late.reasons[reason] += 1


async def measure(stack: Stack, rounds: int, advance: Callable[[], None]) -> list[Late]:
    """A gateway of its own with a faulty reranker, on the embedded backend."""
    async with FaultyReranker() as faulty, new_client() as client:
        service = await asyncio.to_thread(_gateway, stack, faulty.url)
        try:
            caller = Caller(client, service.url, stack.bearer, questions())
            for _ in questions():
                await caller.search(WARM_UP_MS)
                await caller.search(WARM_UP_MS, rerank=False)
            return [*await _silent(caller, faulty, rounds, advance), *await _quick(caller, faulty, rounds, advance)]
        finally:
            await asyncio.to_thread(service.stop)


def _gateway(stack: Stack, reranker_url: str) -> Service:
    service = start("knowledge-gateway", {**stack.settings, "RERANKER_URL": reranker_url}, stack.folder / "faulty")
    try:
        wait_ready(service)
    except BaseException:
        service.stop()
        raise
    return service


async def _silent(caller: Caller, faulty: FaultyReranker, rounds: int, advance: Callable[[], None]) -> list[Late]:
    """All deadlines at once: their searches wait nearly all of the time."""
    faulty.mode = "silent"

    async def wait_out(late: Late, searches: int) -> Late:
        for _ in range(searches):
            await caller.fall_back(late)
            advance()
        return late

    cases = [wait_out(Late("never answers", deadline_ms), rounds * count) for deadline_ms, count in SILENT.items()]
    return list(await asyncio.gather(*cases))


async def _quick(caller: Caller, faulty: FaultyReranker, rounds: int, advance: Callable[[], None]) -> list[Late]:
    loading, gone = Late("answers 503 loading", QUICK_DEADLINE_MS), Late("refuses connections", QUICK_DEADLINE_MS)
    for _ in range(rounds * QUICK):
        for late in (loading, gone):
            faulty.mode = "answers"
            for _ in range(CALM):
                await caller.search(QUICK_DEADLINE_MS)
            late.without.append((await caller.search(QUICK_DEADLINE_MS, rerank=False))[0])
            if late is loading:
                faulty.mode = "loading"
                await caller.fall_back(late)
            else:
                faulty.go()
                await caller.fall_back(late)
                await faulty.come()
            advance()
    return [loading, gone]
