"""The tables: ratios, limits met and missed, on the terminal and in docs/benchmarks.md."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from tests.load.figures import SideBySide, quantile
from tests.load.lateness import Late
from tests.load.memory import Held
from tests.load.overhead import EXCERPT_CHARS, HEAD, Key
from tests.parts.benchmark_page import markdown_table, write_section

RATIO_LIMIT = 1.15
LATE_LIMIT_MS = 100
EMBEDDED_LIMIT_MS = 10
MET, MISSED = "met", "MISSED"
NOT_MEASURED = "not measured on this system"


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything that one run found out."""

    rounds: int
    overhead: Mapping[Key, SideBySide]
    excerpt_chars: float
    late: Sequence[Late]
    embedded: Sequence[float]
    memory: Sequence[Held]
    load_before: str


@dataclass(frozen=True, slots=True)
class Part:
    """A table with a sentence before it."""

    title: str
    note: str
    header: list[str]
    rows: list[list[str]] = field(default_factory=list)


def verdict(*, met: bool) -> str:
    """In capitals where somebody should look."""
    return MET if met else MISSED


def overhead_part(measured: Measured) -> Part:
    """The gateway over its parts."""
    note = (
        f"One `POST /search` against one `/embed`, both legs of the search and one `/rerank` of the same {HEAD} excerpts of at most "
        f"{EXCERPT_CHARS} characters ({measured.excerpt_chars:.0f} on average), made by hand right before or after it. "
        "The interval is the middle 95 % over resampled pairs. Under 100 searches p99 is the slowest of them."
    )
    header = ["backend", "search", "pairs", "p50 ratio", "95 % interval", "p99 ratio", "target (p50)", "verdict"]
    part = Part("The gateway over its parts", note, header)
    for (backend, rerank), pair in sorted(measured.overhead.items(), key=lambda item: (not item[0][1], item[0][0])):
        low, high = pair.interval(0.5)
        ratio = pair.ratio(0.5)
        target = [f"at most {RATIO_LIMIT}", verdict(met=ratio <= RATIO_LIMIT)] if rerank else ["none", ""]
        figures = [str(len(pair.parts)), f"{ratio:.3f}", f"{low:.3f} to {high:.3f}", f"{pair.ratio(0.99):.3f}"]
        part.rows.append([backend, "reranked" if rerank else "not reranked", *figures, *target])
    return part


def late_part(measured: Measured) -> Part:
    """Lateness: absolute, because it is a promise."""
    note = (
        f"Milliseconds from the deadline to the whole answer at the caller, negative before it: a promise (under {LATE_LIMIT_MS} ms), "
        "so given as it is and judged by the latest answer. The last ratio is to the same search without reranking."
    )
    header = ["the reranker", "deadline_ms", "searches", "reason", "p50 ms", "p99 ms", "max ms", "target", "verdict", "p50 ratio"]
    part = Part("How late a fallback is", note, header)
    for late in measured.late:
        after = late.lateness_ms
        reasons = ", ".join(f"{reason} {count}" if len(late.reasons) > 1 else reason for reason, count in late.reasons.most_common())
        figures = [str(round(quantile(after, share))) for share in (0.5, 0.99, 1)]
        cost = f"{quantile(late.seconds, 0.5) / quantile(late.without, 0.5):.2f}" if late.without else ""
        target = [f"under {LATE_LIMIT_MS} ms", verdict(met=max(after) < LATE_LIMIT_MS)]
        part.rows.append([late.reranker, str(late.deadline_ms), str(len(after)), reasons, *figures, *target, cost])
    return part


def embedded_part(measured: Measured) -> Part:
    """The embedded search alone: absolute, because it is a promise."""
    note = f"One call of the embedded backend with a lexical and a vector leg: a promise too (under {EMBEDDED_LIMIT_MS} ms)."
    part = Part("Embedded search without models", note, ["searches", "p50 ms", "p99 ms", "target", "p50", "p99"])
    middle, high = (quantile(measured.embedded, share) * 1000 for share in (0.5, 0.99))
    verdicts = [verdict(met=value < EMBEDDED_LIMIT_MS) for value in (middle, high)]
    part.rows.append([str(len(measured.embedded)), f"{middle:.1f}", f"{high:.1f}", f"under {EMBEDDED_LIMIT_MS} ms", *verdicts])
    return part


def memory_part(measured: Measured) -> Part:
    """Resident memory against its limits."""
    note = "Resident memory of each process after the run, in MB (10^6 bytes), judged by its peak."
    part = Part("Memory", note, ["process", "peak (VmHWM)", "now (VmRSS)", "target", "verdict"])
    for held in measured.memory:
        if held.peak_mb is None or held.now_mb is None:
            part.rows.append([held.process, NOT_MEASURED, NOT_MEASURED, f"under {held.limit_mb}", ""])
            continue
        figures = [f"{held.peak_mb:.0f}", f"{held.now_mb:.0f}", f"under {held.limit_mb}"]
        part.rows.append([held.process, *figures, verdict(met=held.peak_mb < held.limit_mb)])
    return part


def report(measured: Measured) -> None:
    """Print and record the gateway against its parts, fallbacks and memory."""
    parts = [make(measured) for make in (overhead_part, late_part, embedded_part, memory_part)]
    command = "python -m tests.load parts"
    publish("load", "The gateway's own cost, late answers, memory", command, parts, f"Rounds: {measured.rounds}; ", measured.load_before)


def publish(name: str, title: str, command: str, parts: Sequence[Part], remark: str, load_before: str) -> None:
    """Print tables, and replace section `name` of the page by them."""
    console, lines = Console(width=170), list[str]()
    for part in parts:
        table = Table(*part.header, title=part.title, title_justify="left", show_edge=False)
        for row in part.rows:
            table.add_row(*row, style="bold red" if MISSED in row else None)
        console.print(table, "")
        marked = [[f"**{cell}**" if cell == MISSED else cell for cell in row] for row in part.rows]
        lines += [f"### {part.title}", "", part.note, "", *markdown_table(part.header, marked), ""]
    missed = sum(row.count(MISSED) for part in parts for row in part.rows)
    summary = f"Targets missed: {missed}." if missed else "Every target met."
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    machine = f"{remark}usable cores: {cores}; load of the machine before the run: {load_before}."
    console.print(f"{summary} {machine}", style="bold red" if missed else "bold green")
    write_section(name, title, command, [f"{summary} {machine}", "", *lines[:-1]])
