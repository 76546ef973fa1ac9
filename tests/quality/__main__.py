"""`make eval`: prints and records the quality of each ranking on each data set and backend."""

import argparse
import asyncio
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from examples.demo.services import ServiceFailed, running
from knowledge.app import DISTRIBUTION, Adapters, new_backend, new_embedder, new_gateway, new_reranker
from knowledge.errors import BackendError
from knowledge.settings import Settings
from knowledge.telemetry import SERVICE
from servicekit.telemetry import set_up_telemetry
from tests.parts import MissingPart
from tests.parts.benchmark_page import markdown_table, write_section
from tests.parts.opensearch import find_or_start
from tests.quality import fusion
from tests.quality.data import DEFAULT_SETS, DataMissing, DataSet, load
from tests.quality.gateways import MODEL, drop, fill, new_settings
from tests.quality.measures import value
from tests.quality.rankings import RANKINGS, RememberingReranker, rankings

Values = dict[str, list[float]]


def main() -> int:
    """Measure and print; failures are sentences."""
    parser = argparse.ArgumentParser(prog="python -m tests.quality", description=__doc__)
    parser.add_argument("data", type=Path, help="a data set, or a folder of data sets")
    parser.add_argument("--sets", nargs="*", default=DEFAULT_SETS, help="which of the folder's data sets")
    parser.add_argument("--backends", nargs="*", choices=("embedded", "opensearch"), help="default: embedded, and for nDCG both")
    parser.add_argument(
        "--fusion", action="store_true", help="what fusion adds to its legs on the five judged sets, not reranked (opensearch)"
    )
    parser.add_argument("--keep", type=Path, help="with --fusion: keep embedded indices here, so that a second run embeds questions only")
    arguments = parser.parse_args()
    try:
        if arguments.fusion:
            fusion.run(arguments.data, arguments.backends or ["opensearch"], arguments.keep)
            return 0
        sets = load(arguments.data, arguments.sets)
        measured = measure(sets, arguments.backends)
    except (BackendError, DataMissing, MissingPart, ServiceFailed) as error:
        print(f"eval: {error}", file=sys.stderr)
        return 1
    report(measured)
    return 0


def measure(sets: list[DataSet], backends: list[str] | None) -> dict[tuple[str, str, str], Values]:
    """Values per question by (data set, measure, backend) and ranking."""
    measured = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kgtest-")))
        urls = {
            "EMBEDDING_URL": stack.enter_context(running("knowledge-embedding", {"EMBEDDING_MODEL": MODEL}, folder)).url,
            "RERANKER_URL": stack.enter_context(running("knowledge-reranker", {"RERANK_MODEL": MODEL}, folder)).url,
        }
        wanted = {data.name: backends or (["embedded", "opensearch"] if data.measure == "nDCG@10" else ["embedded"]) for data in sets}
        node = stack.enter_context(find_or_start()).url if any("opensearch" in names for names in wanted.values()) else ""
        for data in sets:
            known: dict[tuple[str, str], float] = {}
            for backend in wanted[data.name]:
                settings = new_settings(backend, urls, node, folder)
                measured[data.name, data.measure, backend] = asyncio.run(_measure(data, backend, settings, known))
    return measured


async def _measure(data: DataSet, backend: str, settings: Settings, known: dict[tuple[str, str], float]) -> Values:
    telemetry = set_up_telemetry(SERVICE, DISTRIBUTION)
    inner = new_reranker(settings.reranker)
    assert inner is not None
    adapters = Adapters(
        new_backend(settings.search, telemetry), new_embedder(settings.search, telemetry), RememberingReranker(inner, known), None
    )
    clock = asyncio.get_running_loop().time
    gateway = new_gateway(settings, adapters, telemetry, clock)
    values: Values = {name: [] for name in RANKINGS}
    try:
        with Progress(console=Console(stderr=True)) as progress:
            bar = progress.add_task(f"{data.name} ({backend}): ingesting", total=len(data.documents))
            await fill(data, gateway.ingestor, lambda: progress.advance(bar))
            bar = progress.add_task(f"{data.name} ({backend}): asking", total=len(data.questions))
            for question in data.questions:
                found = await rankings(question, data, gateway.pipeline, adapters.backend, adapters.embedder)
                for name, passages in found.items():
                    values[name].append(value(data.measure, question, passages))
                progress.advance(bar)
    finally:
        drop(settings.search)
        await adapters.aclose()
        telemetry.shutdown()
    return values


def report(measured: dict[tuple[str, str, str], Values]) -> None:
    """Print a table, and record it with the pairwise difference that reranking made."""
    header = ["data set", "measure", "backend", "questions", *RANKINGS, "rerank better / worse"]
    rows = []
    for (name, measure_name, backend), values in measured.items():
        pairs = list(zip(values["hybrid"], values["hybrid + rerank"], strict=True))
        moved = f"{sum(after > before for before, after in pairs)} / {sum(after < before for before, after in pairs)}"
        means = [f"{statistics.mean(values[ranking]):.3f}" for ranking in RANKINGS]
        rows.append([name, measure_name, backend, str(len(pairs)), *means, moved])
    table = Table(*header, show_edge=False)
    for row in rows:
        table.add_row(*row)
    Console(width=160).print(table)
    names = "-".join(dict.fromkeys(name for name, _, _ in measured))
    note = "\nDifferences under .02 are noise; the last column counts questions, because averages of few questions mislead."
    write_section(f"quality {names}", f"Ranking quality: {names}", "make eval EVAL_DATA=...", [*markdown_table(header, rows), note])


if __name__ == "__main__":
    raise SystemExit(main())
