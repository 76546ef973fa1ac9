"""What the processor is good for: how many threads the affinity allows and the control group pays for, and 8-bit and 16-bit arithmetic."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
SELF_CGROUP = Path("/proc/self/cgroup")
CPUINFO = Path("/proc/cpuinfo")

INT8_FLAGS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"})
"""Linux' names of instructions that multiply 8-bit numbers and add up in 32 bits: VNNI and AMX of x86, dotprod and i8mm of Arm."""


BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""The same for numbers of 16 bits with the exponent of fp32; the last one is Arm's."""


@dataclass(frozen=True, slots=True)
class Cpus:
    """Cores to use at once, at least 1; `quota_limited` where a control group pays for less than the affinity shows."""

    count: int
    quota_limited: bool


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What 8-bit weights are on this processor.

    Attributes:
        int8_pays: it has instructions for them; int8 is then about three times as fast as fp32.
        saturates: without those, x86 adds up pairs of products in 16 bits, where large ones are cut off: scores drift.
        bf16_pays: it has instructions for bf16.
    """

    int8_pays: bool
    saturates: bool
    bf16_pays: bool = False


def arithmetic(cpuinfo: str) -> Arithmetic:
    """Read from the text of /proc/cpuinfo; an empty one promises nothing."""
    flags: set[str] = set()
    x86 = False
    for line in cpuinfo.splitlines():
        name, _, words = line.partition(":")
        if name.strip() in ("flags", "Features"):
            flags.update(words.split())
            x86 = x86 or name.strip() == "flags"
    pays = bool(flags & INT8_FLAGS)
    return Arithmetic(pays, saturates=x86 and not pays, bf16_pays=bool(flags & BF16_FLAGS))


def this_arithmetic(cpuinfo: Path = CPUINFO) -> Arithmetic:
    """This machine's; where it does not tell (not Linux), as if it promised nothing."""
    try:
        return arithmetic(cpuinfo.read_text(encoding="utf-8"))
    except OSError:
        return arithmetic("")


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_cpus(cgroup_root: Path = CGROUP_ROOT, self_cgroup: Path = SELF_CGROUP, affinity: Callable[[], int] = _affinity) -> Cpus:
    """The cores this process may use. A quota of 1.5 cores is 2 threads, of 0.5 one.

    Args:
        cgroup_root: where the control group file system is mounted.
        self_cgroup: the file that names this process's groups.
        affinity: how many cores the scheduler may place it on.
    """
    cores = max(1, affinity())
    quotas = [quota for folder in _folders(cgroup_root, self_cgroup) if (quota := _quota(folder)) is not None]
    paid = min(quotas, default=math.inf)
    if paid >= cores:
        return Cpus(cores, quota_limited=False)
    return Cpus(max(1, math.ceil(paid - 0.01)), quota_limited=True)


def _folders(root: Path, self_cgroup: Path) -> list[Path]:
    """The process's group and those above it (a quota of any of them counts), for both versions of the hierarchy."""
    bases = {root: "/", root / "cpu": "/", root / "cpu,cpuacct": "/"}
    try:
        lines = self_cgroup.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            bases[root] = path
        elif "cpu" in controllers.split(","):
            bases[root / "cpu"] = bases[root / "cpu,cpuacct"] = path
    folders: list[Path] = []
    for base, path in bases.items():
        inner = base / path.lstrip("/")
        folders += [folder for folder in (inner, *inner.parents) if folder.is_relative_to(base)]
    return folders


def _quota(folder: Path) -> float | None:
    """Cores that this group pays for; None without a limit or without such files."""
    try:  # version 2: "max 100000" or "150000 100000"
        quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        try:  # version 1: -1 is no limit
            quota = (folder / "cpu.cfs_quota_us").read_text(encoding="utf-8").strip()
            period = (folder / "cpu.cfs_period_us").read_text(encoding="utf-8").strip()
        except OSError:
            return None
    if not (quota.isdigit() and period.isdigit()) or int(quota) <= 0 or int(period) <= 0:
        return None
    return int(quota) / int(period)
