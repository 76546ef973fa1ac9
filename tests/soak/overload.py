"""`python -m tests.soak.overload`: four times the load that the reranker-service can carry, and whether it keeps its promises."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from examples.demo.services import Service, running
from tests.soak.memory import cpu_s
from tests.soak.traffic import QUERY, Traffic, leave

PASSAGES, CHARS = 15, 500
WARM_REQUESTS = 10


@dataclass(frozen=True, slots=True)
class Answer:
    """One request's end; `late_s` is counted from the deadline by the caller's clock, and below 0 in time."""

    partial: bool
    status: int
    scored: int
    late_s: float
    retry_after_ms: int
    deadline_s: float


async def ask(traffic: Traffic, deadline_s: float, *, partial: bool) -> Answer:
    """Send one request."""
    documents = traffic.passages(PASSAGES, CHARS, CHARS)
    body: dict[str, Any] = {"query": QUERY, "documents": documents, "deadline_ms": int(deadline_s * 1000), "allow_partial": partial}
    started = time.monotonic()
    response = await traffic.client.post(f"{traffic.url}/rerank", json=body)
    late_s = time.monotonic() - started - deadline_s
    answer = response.json()
    return Answer(partial, response.status_code, len(answer.get("results", [])), late_s, answer.get("retry_after_ms", 0), deadline_s)


async def overload(service: Service, factor: float, seconds: float, deadline_s: float) -> None:
    """Requests at a fixed rate, whether or not those before were answered; prints what became of them."""
    limits = httpx.Limits(max_connections=1000)
    async with httpx.AsyncClient(timeout=60, limits=limits) as client:
        traffic = Traffic(service.url, client)
        started = time.monotonic()
        for _ in range(WARM_REQUESTS):
            await ask(traffic, 25, partial=False)
        each_s = (time.monotonic() - started) / WARM_REQUESTS
        print(f"one request alone takes {each_s:.3f} s; {factor:g} times as many come, each with {deadline_s:g} s")
        asked = []
        for number in range(int(seconds * factor / each_s)):
            asked.append(asyncio.create_task(ask(traffic, deadline_s, partial=number % 2 == 0)))
            await asyncio.sleep(max(0.0, started + WARM_REQUESTS * each_s + number * each_s / factor - time.monotonic()))
        report(await asyncio.gather(*asked))
        await asyncio.gather(*(leave(service.url, traffic.passages(PASSAGES * 2), 0.3) for _ in range(50)))
    await asyncio.sleep(1)
    before = cpu_s(service.process.pid)
    await asyncio.sleep(1)
    print(f"CPU in the second after 50 callers went away: {cpu_s(service.process.pid) - before:.2f} s")


def report(answers: list[Answer]) -> None:
    """Counts, and how the promises were kept."""
    for partial in (False, True):
        mine = [each for each in answers if each.partial is partial]
        refused = [each for each in mine if each.status == 429]
        hopeless = [each for each in mine if each.status == 503 and each.late_s < -0.75 * each.deadline_s]
        admitted = [each for each in mine if each not in refused and each not in hopeless]
        promised = 2 if partial else PASSAGES
        broken = [each for each in admitted if each.status != 200 or each.scored < promised]
        late_ms = sorted(1000 * each.late_s for each in admitted)
        retries = [each.retry_after_ms for each in refused]
        print("two pairs promised:" if partial else "all pairs promised:")
        print(f"  {len(mine)} asked; {len(refused)} refused, Retry-After {min(retries, default=0)} to {max(retries, default=0)} ms")
        print(f"  {len(hopeless)} hopeless even alone; {len(admitted)} admitted, {len(broken)} of these promises broken")
        print(f"  scored {statistics.mean(each.scored for each in admitted):.1f} of {PASSAGES} on average")
        print(f"  latest answer {late_ms[-1]:.0f} ms after its deadline; {sum(late > 50 for late in late_ms)} more than 50 ms")


def main() -> None:
    """Start the service and load it."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.overload", description=__doc__)
    parser.add_argument("--factor", type=float, default=4.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--deadline", type=float, default=2.0)
    parser.add_argument("--model", default="ms-marco-minilm-l12-v2")
    given = parser.parse_args()
    settings = {"RERANK_MODEL": given.model, "RERANK_SCORED_CHARS_BUDGET": "0"}
    with tempfile.TemporaryDirectory(prefix="kgtest-") as folder, running("knowledge-reranker", settings, Path(folder)) as service:
        asyncio.run(overload(service, given.factor, given.seconds, given.deadline))


if __name__ == "__main__":
    main()
