"""The tables of growing numbers of passages and of ingestion."""

from collections.abc import Sequence

from tests.load.figures import SideBySide, quantile
from tests.load.ingest import PASSAGES, SLICES
from tests.load.report import Part, publish, verdict
from tests.load.scale import BLOCK, BLOCKS, CLIENTS, TOP_K, AtSize
from tests.load.scale_stack import HEAP

P50_LIMIT, P50_MORE_MS = 1.05, 1.5
P99_LIMIT = 1.25
THROUGHPUT_LIMIT = 0.8
INGEST_LIMIT = 0.7


def _median_met(pair: SideBySide) -> bool:
    more_ms = 1000 * (quantile(pair.gateway, 0.5) - quantile(pair.parts, 0.5))
    return pair.ratio(0.5) <= P50_LIMIT or more_ms <= P50_MORE_MS


def search_part(found: Sequence[AtSize]) -> Part:
    """One search at a time, and many at once."""
    note = (
        f"`POST /search` (top_k {TOP_K}, a signed token, a filter that half of the passages pass, telemetry on, no reranker) against one "
        "`_msearch` with both legs written by hand, one right after the other; one client (aiohttp, orjson) asks both and parses what it "
        "gets. The gateway is a process of its own, set up as `knowledge serve` does it, but for the vector of the question: it looks it "
        "up in memory, as the client by hand does. Questions hold no identifier, so that both ask two legs. Throughput: "
        f"{CLIENTS} clients at once, {BLOCKS} blocks of {BLOCK} searches a side, in turns. More: what p50 grows by from the row before."
    )
    header = ["passages", "MB on disk", "pairs", "p50 ratio", "95 % interval", "p50 met", "p99 ratio", "p99 met", "throughput", "met"]
    header += ["p50 growth", "raw p50 growth"]
    part = Part("Search over HTTP at growing numbers of passages", note, header)
    for before, one in zip([None, *found], found, strict=False):
        low, high = one.pair.interval(0.5)
        figures = [f"{one.passages:,}", f"{one.megabytes:.0f}", str(len(one.pair.parts)), f"{one.pair.ratio(0.5):.3f}"]
        figures += [f"{low:.3f} to {high:.3f}", verdict(met=_median_met(one.pair))]
        figures += [f"{one.pair.ratio(0.99):.3f}", verdict(met=one.pair.ratio(0.99) <= P99_LIMIT)]
        figures += [f"{one.throughput_ratio:.3f}", verdict(met=one.throughput_ratio >= THROUGHPUT_LIMIT)]
        part.rows.append([*figures, *_growth(before, one)])
    return part


def _growth(before: AtSize | None, one: AtSize) -> list[str]:
    if before is None:
        return ["", ""]
    gateway = quantile(one.pair.gateway, 0.5) / quantile(before.pair.gateway, 0.5)
    return [f"{gateway:.2f}", f"{quantile(one.pair.parts, 0.5) / quantile(before.pair.parts, 0.5):.2f}"]


def ingest_part(found: SideBySide) -> Part:
    """Rates over all slices."""
    note = (
        f"{PASSAGES:,} passages in {SLICES} slices, each written by both sides, one after the other, into an index of its own with the "
        "gateway's settings: the ingestor (chunks, identifiers, hashes, what is stored already, bulk writes, all searchable at the end) "
        "with vectors looked up in memory, and `opensearch-py`'s `parallel_bulk` with its defaults on the finished documents."
    )
    part = Part(
        "Ingestion without models", note, ["slices", "rate over parallel_bulk", "lowest slice", "highest slice", "target", "verdict"]
    )
    ratio = sum(found.parts) / sum(found.gateway)
    each = sorted(parts / gateway for gateway, parts in zip(found.gateway, found.parts, strict=True))
    figures = [str(len(each)), f"{ratio:.3f}", f"{each[0]:.3f}", f"{each[-1]:.3f}"]
    part.rows.append([*figures, f"at least {INGEST_LIMIT}", verdict(met=ratio >= INGEST_LIMIT)])
    return part


def report_search(found: Sequence[AtSize], data: str, load_before: str) -> None:
    """Print and record."""
    limits = f"p50 at most {P50_LIMIT} or {P50_MORE_MS} ms more, p99 at most {P99_LIMIT}, throughput at least {THROUGHPUT_LIMIT}"
    remark = f"Targets: {limits}. Copies of {data}; heap {HEAP}; "
    publish("scale", "The gateway over a raw `_msearch`", "python -m tests.load scale", [search_part(found)], remark, load_before)


def report_ingest(found: SideBySide, data: str, load_before: str) -> None:
    """Print and record."""
    command = "python -m tests.load ingest"
    publish("ingest", "Ingestion over `parallel_bulk`", command, [ingest_part(found)], f"Copies of {data}; heap {HEAP}; ", load_before)
