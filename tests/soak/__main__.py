"""`python -m tests.soak --minutes 15`: the reranker-service as a process under mixed load; fails if its memory grows."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import httpx

from examples.demo.services import Service, running
from tests.soak.memory import Sample, cpu_s, growth_mb, is_flat, watch
from tests.soak.traffic import Tally, Traffic

SAMPLES = 240
"""Runs come and go between them: many samples tell what is held from what a run takes for a moment."""
IDLE_CPU_S = 0.2
SETTINGS = {"RERANK_SCORED_CHARS_BUDGET": "0", "RERANK_PASSAGE_CACHE_MB": "8"}
"""Caches so small that they are full before the warm-up ends."""


async def soak(service: Service, minutes: float) -> tuple[Tally, list[Sample], float]:
    """Load it; returns what came back, its memory, and what it had of the CPU in an idle second afterwards."""
    samples: list[Sample] = []
    pid = service.process.pid
    watching = asyncio.create_task(watch(pid, minutes * 60 / SAMPLES, samples))
    async with httpx.AsyncClient(timeout=60) as client:
        tally = await Traffic(service.url, client).run(minutes * 60)
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    await asyncio.sleep(1)
    before = cpu_s(pid)
    await asyncio.sleep(1)
    return tally, samples, cpu_s(pid) - before


def main() -> int:
    """0 if memory is flat and every answer was one that may come."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--model", default="ms-marco-minilm-l12-v2")
    given = parser.parse_args()
    settings = {**SETTINGS, "RERANK_MODEL": given.model}
    with tempfile.TemporaryDirectory(prefix="kgtest-") as folder, running("knowledge-reranker", settings, Path(folder)) as service:
        tally, samples, idle_s = asyncio.run(soak(service, given.minutes))
    print(", ".join(f"{answer}: {count}" for answer, count in sorted(tally.answers.items())))
    print(f"memory {samples[-1][1]:.0f} MB, grown by {growth_mb(samples):.1f} MB after the warm-up; CPU in an idle second {idle_s:.2f} s")
    faults = list(tally.faults)
    if not is_flat(samples):
        faults.append("memory is not flat")
    if idle_s > IDLE_CPU_S:
        faults.append("the service works although nobody asks")
    for fault in faults[:20]:
        print(f"fault: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
