"""`python -m tests.quality.weights DIR`: choose leg weights on development data, and report them on test data never looked at.

Development: cosqa dev, scifact train, the even articles of the xquad sets. Test: cosqa test, scifact test, cranfield, the odd articles.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
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
from tests.quality.data import DataMissing, DataSet, load, load_split
from tests.quality.legs import Legs, run_legs, split_in_half
from tests.quality.measures import value
from tests.quality.rankings import TENANT

SETS = ("scifact", "cranfield", "cosqa", "xquad-de", "xquad-de2en")
DEVELOPMENT = {"cosqa": "dev", "scifact": "train"}
HALVED = ("xquad-de", "xquad-de2en")
LEXICAL_WEIGHTS = (0.0, 0.05, 0.1, 0.125, 0.15, 0.175, 0.2, 0.25, 0.3, 0.5, 1.0)
IDENTIFIER_WEIGHTS = (0.0, 0.05, 0.1, 0.2, 1.0)
MODEL = "multilingual-e5-small"

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
        for data in load(root, SETS):
            backend = EmbeddedBackend(indices / f"{data.name}.db", tracer=telemetry.tracer(SERVICE))
            await _ingest(data, backend, embedder, progress)
            test[data.name] = await _legs(data, backend, embedder, progress)
            if data.name in HALVED:
                development[data.name] = split_in_half(test[data.name], second=False)
                test[data.name] = split_in_half(test[data.name], second=True)
            elif data.name in DEVELOPMENT:
                split = load_split(root / data.name, data, DEVELOPMENT[data.name])
                development[data.name] = await _legs(split, backend, embedder, progress)
            await backend.aclose()
        await embedder.aclose()
    return development, test


async def _ingest(data: DataSet, backend: EmbeddedBackend, embedder: HttpEmbedder, progress: Progress) -> None:
    ingestor = Ingestor(backend, embedder, text_fields=SearchSettings().text_fields, info_timeout_s=60)
    bar = progress.add_task(f"{data.name}: ingesting", total=len(data.documents))
    await ingestor.ingest(data.documents, tenant=TENANT, source="quality", on_document=lambda _: progress.advance(bar))


async def _legs(data: DataSet, backend: EmbeddedBackend, embedder: HttpEmbedder, progress: Progress) -> list[Legs]:
    bar = progress.add_task(f"{data.name}: asking", total=len(data.questions))
    return await run_legs(data, backend, embedder, lambda: progress.advance(bar))


def quality(runs: Sequence[Legs], lexical: float, identifier: float) -> float:
    """Mean nDCG@10 of hybrid lists with these weights, the vector leg's being 1."""
    weights = {Leg.LEXICAL: lexical, Leg.VECTOR: 1.0, Leg.IDENTIFIER: identifier}
    rrf_k = SearchSettings().rrf_k
    return statistics.mean(value("nDCG@10", one.question, one.fused(weights, rrf_k)[:10]) for one in runs)


def legs_quality(runs: Sequence[Legs], leg: Leg) -> float:
    """Mean nDCG@10 of a single leg."""
    return statistics.mean(value("nDCG@10", one.question, one.leg(leg)[:10]) for one in runs)


def shortfall(name_values: Mapping[str, float], best_legs: Mapping[str, float]) -> float:
    """By how much the worst data set is below the better of its legs; negative if all are above."""
    return max(best_legs[name] - found for name, found in name_values.items())


def report(development: Runs, test: Runs) -> None:
    """Print the grid on development data, the choice, and the choice on test data; record the latter."""
    best = {name: max(legs_quality(runs, leg) for leg in (Leg.LEXICAL, Leg.VECTOR)) for name, runs in development.items()}
    grid = {
        (lexical, identifier): {name: quality(runs, lexical, identifier) for name, runs in development.items()}
        for lexical in LEXICAL_WEIGHTS
        for identifier in IDENTIFIER_WEIGHTS
    }
    console = Console(width=160)
    table = Table("LEXICAL", "IDENTIFIER", *development, "mean", "worst against its better leg", title="development", show_edge=False)
    for (lexical, identifier), values in grid.items():
        cells = [f"{one:.3f}" for one in values.values()]
        table.add_row(
            f"{lexical:g}", f"{identifier:g}", *cells, f"{statistics.mean(values.values()):.4f}", f"{-shortfall(values, best):+.3f}"
        )
    console.print(table)
    # The best mean, less what any data set is more than .02 below the better of its legs.
    chosen = max(grid, key=lambda weights: statistics.mean(grid[weights].values()) - max(0.0, shortfall(grid[weights], best) - 0.02))
    settings = SearchSettings()
    columns = {"equal": (1.0, 1.0), "default": (settings.lexical_weight, settings.identifier_weight), "best on development": chosen}
    header = ["data set", "BM25 leg", "vector leg", *(f"{name} ({one:g}, {two:g})" for name, (one, two) in columns.items())]
    rows, means = [], {name: list[float]() for name in header[1:]}
    for name, runs in test.items():
        measured = [legs_quality(runs, Leg.LEXICAL), legs_quality(runs, Leg.VECTOR), *(quality(runs, *one) for one in columns.values())]
        rows.append([name, *(f"{one:.3f}" for one in measured)])
        for column, one in zip(header[1:], measured, strict=True):
            means[column].append(one)
    rows.append(["mean", *(f"{statistics.mean(column):.3f}" for column in means.values())])
    result = Table(*header, title="test", show_edge=False)
    for row in rows:
        result.add_row(*row)
    console.print(result)
    write_section(
        "quality weights",
        "Leg weights: chosen on development data, measured on test data (nDCG@10, embedded, hybrid without reranking)",
        "python -m tests.quality.weights DIR",
        [*markdown_table(header, rows), "\nIn brackets: LEXICAL_WEIGHT, IDENTIFIER_WEIGHT; VECTOR_WEIGHT is 1."],
    )


if __name__ == "__main__":
    raise SystemExit(main())
