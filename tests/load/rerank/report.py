"""The tables of `make bench-rerank`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.load.figures import SideBySide, quantile
from tests.load.report import Part, publish, verdict
from tests.load.rerank.measure import AgainstPeers, Deadlines, Overload
from tests.load.rerank.partial import SHARES, Curve
from tests.load.rerank.texts import PASSAGES
from tests.parts.benchmark_page import markdown_table, write_block

SIZING_PAGE = Path("docs/reranker.md")
SEED_LIMITS = {"auto": 5.0, "int8-static": 5.8}
PEER_LIMITS = {"500 characters": 1.9, "80 to 1,800 characters": 3.5}
LATE_LIMIT_MS = 50
SCORED_LIMITS = {0.25: 2, 0.5: 6}
MEMORY_LIMIT_MB = 1300
CACHE_LIMIT_MS = 5


@dataclass(slots=True)
class ShapeFigures:
    """The large shape at one precision: what was asked for, what came of it, times against the padded batch, peak of memory."""

    asked: str
    precision: str
    seed: SideBySide
    memory_mb: float | None
    deadlines: Deadlines | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything that one run found out."""

    shapes: Sequence[ShapeFigures]
    repeated_ms: Sequence[float]
    peers: Mapping[str, AgainstPeers]
    overload: Sequence[Overload]
    curve: Curve | None
    sizes: Sequence[tuple[str, str, int, int, float]]
    """Model, precision, cores, passages, median seconds."""


def shape_part(measured: Measured) -> Part:
    """The large shape: speed and memory by precision."""
    note = (
        f"{PASSAGES} passages of 500 characters, no two requests alike, over HTTP; one padded fp32 batch over this service, p50. The "
        "shape is bge-reranker-v2-m3's, the weights are random: no word on quality. `auto` had all of the others to choose from; its "
        "peak is that of trying them."
    )
    header = [
        "precision",
        "came to",
        "padded batch / this service",
        "middle 95 %",
        "target",
        "verdict",
        "peak memory in MB",
        "target ",
        "verdict ",
    ]
    part = Part("The shape of bge-reranker-v2-m3 against one padded batch", note, header)
    for shape in measured.shapes:
        low, high = shape.seed.interval(0.5)
        times = 1 / shape.seed.ratio(0.5)
        least = SEED_LIMITS.get(shape.asked)
        target = [f"at least {least}", verdict(met=times >= least)] if least else ["none", ""]
        held = "" if shape.memory_mb is None else f"{shape.memory_mb:.0f}"
        limited = shape.asked == "int8" and shape.memory_mb is not None
        memory = [f"under {MEMORY_LIMIT_MB}", verdict(met=(shape.memory_mb or 0) < MEMORY_LIMIT_MB)] if limited else ["none", ""]
        part.rows.append([shape.asked, shape.precision, f"{times:.2f}", f"{1 / high:.2f} to {1 / low:.2f}", *target, held, *memory])
    return part


def deadlines_part(precision: str, deadlines: Deadlines) -> Part:
    """What is scored when time is short, and when the answer is there."""
    note = f"The same shape as {precision}, `allow_partial`, deadlines as shares of the time that all {PASSAGES} passages take."
    part = Part("At deadlines", note, ["figure", "measured", "target", "verdict"])
    for share, counts in deadlines.scored.items():
        least = SCORED_LIMITS.get(share)
        found = f"{min(counts)} at least, {quantile(counts, 0.5)} in the middle"
        target = [f"at least {least}", verdict(met=min(counts) >= least)] if least else ["none", ""]
        part.rows.append([f"scored of {PASSAGES} at {share:.0%} of the whole time", found, *target])
    late = quantile(deadlines.late_ms, 0.99)
    met = verdict(met=late < LATE_LIMIT_MS)
    part.rows.append(["milliseconds after the deadline, p99 (negative: before it)", f"{late:.0f}", f"under {LATE_LIMIT_MS}", met])
    return part


def peers_part(measured: Measured) -> Part:
    """Ours over HTTP against each peer's own clock."""
    note = (
        "The same int8 file of ms-marco-MiniLM-L12-v2 (bf16: made of it), each peer from the registry in an environment of its own, one "
        "request at a time, in turns: this service over HTTP, the peers in process by their own clocks. Throughput of this service over "
        "theirs."
    )
    part = Part("Against its peers", note, ["passages", "this service", "requests", *_names(measured), "target, over the best", "verdict"])
    for length, found in measured.peers.items():
        limit = PEER_LIMITS[length]
        for precision, times in found.ours.items():
            ratios = [found.ratio(precision, name) for name in _names(measured)]
            figures = [f"{ratio:.2f}" for ratio in ratios]
            part.rows.append([length, precision, str(len(times)), *figures, f"at least {limit}", verdict(met=min(ratios) >= limit)])
    return part


def _names(measured: Measured) -> list[str]:
    return sorted(next(iter(measured.peers.values())).peers) if measured.peers else []


def promises_part(measured: Measured) -> Part:
    """What must not happen under load, and what is remembered."""
    note = (
        "MiniLM, open loop: requests come whether or not others were answered, each with a deadline and without `allow_partial`. Refused: "
        "429 at once. Broken: accepted, and then not served in time. Late: p99 of the answer to an accepted request, after its deadline."
    )
    part = Part("Promises under overload", note, ["load", "requests", "refused", "served", "broken", "late ms", "target", "verdict"])
    for found in measured.overload:
        late = f"{quantile(found.late_ms, 0.99):.0f}" if found.late_ms else ""
        met = verdict(met=not found.broken and (not found.late_ms or quantile(found.late_ms, 0.99) < LATE_LIMIT_MS))
        figures = [str(found.asked), str(found.refused), str(found.served), str(found.broken), late]
        part.rows.append([f"{found.times:g} x", *figures, f"none broken, under {LATE_LIMIT_MS} ms", met])
    return part


def cache_part(measured: Measured) -> Part:
    """Absolute, because it is a promise."""
    part = Part(
        "The same request again", "MiniLM, over HTTP, out of the pair-score cache.", ["requests", "p50 ms", "p99 ms", "target", "verdict"]
    )
    middle, high = (quantile(measured.repeated_ms, share) for share in (0.5, 0.99))
    met = verdict(met=middle < CACHE_LIMIT_MS)
    part.rows.append([str(len(measured.repeated_ms)), f"{middle:.1f}", f"{high:.1f}", f"p50 under {CACHE_LIMIT_MS} ms", met])
    return part


def curve_part(curve: Curve) -> Part:
    """What a partial answer is worth."""
    note = (
        f"nDCG@10 on xquad-de, late interaction, {len(curve.by_share[0.0])} questions, with the scores of the first part of the head "
        "alone; pairs cost about the same."
    )
    part = Part("What a partial answer is worth", note, ["scored", "nDCG@10", "share of the gain", "target", "verdict"])
    whole = curve.mean(1.0) - curve.mean(0.0)
    for share in SHARES:
        gained = (curve.mean(share) - curve.mean(0.0)) / whole if whole else 0.0
        target = ["at least half", verdict(met=gained >= 0.5)] if share == 0.5 else ["", ""]
        part.rows.append([f"{share:.0%}", f"{curve.mean(share):.3f}", f"{gained:.0%}", *target])
    return part


def sizes_part(measured: Measured) -> Part:
    """How to size it; relative to one cell."""
    note = "Median time of a request of passages of 500 characters, relative to the first row. docs/reranker.md says how to use it."
    part = Part("Time by model, precision, cores and passages", note, ["model", "precision", "cores", "passages", "relative"])
    rows = sorted(measured.sizes, key=lambda row: (row[0].startswith("shape"), row[1], row[2], row[3]))
    unit = rows[0][4] if rows else 1.0
    for model, precision, cores, passages, seconds in rows:
        part.rows.append([model, precision, str(cores), str(passages), f"{seconds / unit:.2f}"])
    return part


def report(measured: Measured, data: str, load_before: str) -> None:
    """Print and record."""
    parts = [shape_part(measured)]
    parts += [deadlines_part(shape.precision, shape.deadlines) for shape in measured.shapes if shape.deadlines]
    parts += [peers_part(measured), promises_part(measured), cache_part(measured)]
    parts += [curve_part(measured.curve)] if measured.curve else []
    sizes = sizes_part(measured)
    parts.append(sizes)
    write_block(SIZING_PAGE, "sizes", markdown_table(sizes.header, sizes.rows))
    publish("rerank", "The reranker-service", "make bench-rerank", parts, f"Texts of {data}; ", load_before)
