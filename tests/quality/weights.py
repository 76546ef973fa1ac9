"""`python -m tests.quality.weights DIR`: choose leg weights on development data, and report them on test data never looked at.

Development: cosqa dev, scifact train, the even articles of the xquad sets. Test: cosqa test, scifact test, cranfield, the odd articles.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from examples.demo.services import ServiceFailed, running
from knowledge.adapters.embedded import EmbeddedBackend
from knowledge.adapters.embedding_http import HttpEmbedder
from knowledge.ingest.ingestor import Ingestor
from knowledge.models import Leg
from knowledge.settings import SearchSettings
from knowledge.telemetry import SERVICE
from servicekit.telemetry import set_up_telemetry
from tests.parts.benchmark_page import markdown_table, write_section
from tests.quality.data import HALVED, JUDGED_SETS, DataMissing, DataSet, held_out, load, load_split
from tests.quality.gateways import MODEL, fill
from tests.quality.legs import Legs, Weights, run_legs
from tests.quality.measures import value

DEVELOPMENT = {"cosqa": "dev", "scifact": "train"}
LEXICAL_WEIGHTS = (0.0, 0.02, 0.03, 0.04, 0.05, 0.1, 0.3, 1.0)
LEXICAL_WEIGHTS_MAX = (0.0, 0.5, 1.0)
"""0 leaves the weight as it is, whatever words are shared."""

IDENTIFIER_WEIGHTS = (0.0, 0.05, 0.1, 1.0)
GRID = tuple(
    Weights(lexical, highest, identifier)
    for lexical in LEXICAL_WEIGHTS
    for highest in LEXICAL_WEIGHTS_MAX
    for identifier in IDENTIFIER_WEIGHTS
    if highest == 0 or highest > lexical > 0
)
EQUAL = Weights(1.0, 1.0, 1.0)

Runs = dict[str, list[Legs]]


def main() -> int:
    """Measure, choose, report."""
    parser = argparse.ArgumentParser(prog="python -m tests.quality.weights", description=__doc__)
    parser.add_argument("data", type=Path, help="the folder of data sets")
    parser.add_argument("--keep", type=Path, help="keep the indices here, so that a second run embeds nothing")
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="kgtest-") as temporary:
            (arguments.keep or Path(temporary)).mkdir(parents=True, exist_ok=True)
            development, test = asyncio.run(_run(arguments.data, arguments.keep or Path(temporary), Path(temporary)))
    except (DataMissing, ServiceFailed) as error:
        print(f"weights: {error}", file=sys.stderr)
        return 1
    report(development, test)
    return 0


async def _run(root: Path, indices: Path, folder: Path) -> tuple[Runs, Runs]:
    development: Runs = {}
    test: Runs = {}
    with (
        running("knowledge-embedding", {"EMBEDDING_MODEL": MODEL}, folder) as embedding,
        Progress(console=Console(stderr=True)) as progress,
    ):
        telemetry = set_up_telemetry(SERVICE, "knowledge-gateway")
        embedder = HttpEmbedder(embedding.url, tracer=telemetry.tracer(SERVICE))
        for data in load(root, JUDGED_SETS):
            backend = EmbeddedBackend(indices / f"{data.name}.db", tracer=telemetry.tracer(SERVICE))
            ingestor = Ingestor(backend, embedder, text_fields=SearchSettings().text_fields, info_timeout_s=60)
            bar = progress.add_task(f"{data.name}: ingesting", total=len(data.documents))
            await fill(data, ingestor, partial(progress.advance, bar))
            test[data.name] = await _legs(data, backend, embedder, progress)
            if data.name in HALVED:
                development[data.name] = [one for one in test[data.name] if not held_out(one.question)]
                test[data.name] = [one for one in test[data.name] if held_out(one.question)]
            elif data.name in DEVELOPMENT:
                split = load_split(root / data.name, data, DEVELOPMENT[data.name])
                development[data.name] = await _legs(split, backend, embedder, progress)
            await backend.aclose()
        await embedder.aclose()
    return development, test


async def _legs(data: DataSet, backend: EmbeddedBackend, embedder: HttpEmbedder, progress: Progress) -> list[Legs]:
    bar = progress.add_task(f"{data.name}: asking", total=len(data.questions))
    return await run_legs(data, backend, embedder, lambda: progress.advance(bar))


def quality(runs: Sequence[Legs], weights: Weights) -> float:
    """Mean nDCG@10 of hybrid lists with these weights."""
    rrf_k = SearchSettings().rrf_k
    return statistics.mean(value("nDCG@10", one.question, one.fused(weights, rrf_k)[:10]) for one in runs)


def legs_quality(runs: Sequence[Legs], leg: Leg) -> float:
    """Mean nDCG@10 of a single leg."""
    return statistics.mean(value("nDCG@10", one.question, one.leg(leg)[:10]) for one in runs)


def shortfall(name_values: Mapping[str, float], best_legs: Mapping[str, float]) -> float:
    """By how much the worst data set is below the better of its legs; negative if all are above."""
    return max(best_legs[name] - found for name, found in name_values.items())


def report(development: Runs, test: Runs) -> None:
    """Print the grid on development data and the choice; print and record the choice on test data."""
    best = {name: max(legs_quality(runs, leg) for leg in (Leg.LEXICAL, Leg.VECTOR)) for name, runs in development.items()}
    grid = {weights: {name: quality(runs, weights) for name, runs in development.items()} for weights in GRID}
    rows = [
        [
            *(f"{one:g}" for one in (weights.lexical, weights.lexical_max, weights.identifier)),
            *(f"{one:.3f}" for one in (*values.values(), statistics.mean(values.values()))),
            f"{-shortfall(values, best):+.3f}",
        ]
        for weights, values in grid.items()
    ]
    _print("development", ["LEXICAL", "LEXICAL_MAX", "IDENTIFIER", *development, "mean", "worst against its better leg"], rows)
    # The best mean, less what any data set is more than .01 below the better of its legs: half of what is allowed on test data.
    chosen = max(grid, key=lambda weights: statistics.mean(grid[weights].values()) - max(0.0, shortfall(grid[weights], best) - 0.01))
    settings = SearchSettings()
    default = Weights(settings.lexical_weight, settings.lexical_weight_max, settings.identifier_weight)
    columns = {"equal": EQUAL, "default": default, "fixed": Weights(0.1, 0.0, 0.1), "best on development": chosen}
    header = ["data set", "BM25 leg", "vector leg", *(f"{name} ({weights})" for name, weights in columns.items())]
    measured = {
        name: [*(legs_quality(runs, leg) for leg in (Leg.LEXICAL, Leg.VECTOR)), *(quality(runs, one) for one in columns.values())]
        for name, runs in test.items()
    }
    measured["mean"] = [statistics.mean(column) for column in zip(*measured.values(), strict=True)]
    rows = [[name, *(f"{one:.3f}" for one in values)] for name, values in measured.items()]
    _print("test", header, rows)
    write_section(
        "quality weights",
        "Leg weights: chosen on development data, measured on test data (nDCG@10, embedded, hybrid without reranking)",
        "python -m tests.quality.weights DIR",
        [*markdown_table(header, rows), "\nIn brackets: LEXICAL_WEIGHT to LEXICAL_WEIGHT_MAX, IDENTIFIER_WEIGHT; VECTOR_WEIGHT is 1."],
    )


def _print(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(*header, title=title, show_edge=False)
    for row in rows:
        table.add_row(*row)
    Console(width=180).print(table)


if __name__ == "__main__":
    raise SystemExit(main())
