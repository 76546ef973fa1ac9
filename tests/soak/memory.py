"""The memory of a process over time, and whether it is flat."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

WARM_UP_SHARE = 0.3
"""Of the time: caches fill, the allocator finds its size."""
TOLERATED_SHARE = 0.03
"""Growth in the rest of the time against the memory held; the scatter of a short run is about half of it."""
KIB = 1024

Sample = tuple[float, float]
"""Seconds since the start, and resident memory in MB (10^6 bytes)."""


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MB.

    Raises:
        RuntimeError: the system does not say; it must be a Linux.
    """
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        raise RuntimeError("the soak reads /proc/PID/status: run it on Linux.")
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    return int(fields["VmRSS"].split()[0]) * KIB / 1e6


def cpu_s(pid: int) -> float:
    """Seconds that a process has had of all cores."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(ticks[11]) + int(ticks[12])) / 100


async def watch(pid: int, every_s: float, samples: list[Sample]) -> None:
    """Add samples, and print them, until cancelled."""
    started = time.monotonic()
    while True:
        samples.append((time.monotonic() - started, resident_mb(pid)))
        print(f"{samples[-1][0]:7.0f} s  {samples[-1][1]:7.1f} MB", flush=True)
        await asyncio.sleep(every_s)


def growth_mb(samples: Sequence[Sample]) -> float:
    """What the slope after the warm-up adds in the rest of the time.

    The slope is the median of those between any two samples (Theil and Sen): a single high sample does not make one.
    """
    ends = samples[-1][0]
    settled = [sample for sample in samples if sample[0] >= WARM_UP_SHARE * ends]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(settled, 2)]
    return statistics.median(slopes) * (ends - settled[0][0])


def is_flat(samples: Sequence[Sample]) -> bool:
    """Whether the growth is within what is tolerated."""
    return growth_mb(samples) <= TOLERATED_SHARE * samples[-1][1]
