"""`make eval EVAL_DATA=DIR EVAL_OPTIONS=--fusion`: what fusion adds to its legs on five judged sets, and whether its targets are met.

Test questions only, none that weights were chosen on; hybrid lists without reranking, out of the gateway's pipeline.
"""

import asyncio
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from examples.demo.services import running
from knowledge.adapters.embedded import EmbeddedBackend
from knowledge.app import DISTRIBUTION, Adapters, new_backend, new_embedder, new_gateway
from knowledge.ingest.ingestor import Ingestor
from knowledge.settings import SearchSettings, Settings
from knowledge.telemetry import SERVICE
from servicekit.telemetry import Telemetry, set_up_telemetry
from tests.parts.benchmark_page import markdown_table, write_section
from tests.parts.opensearch import find_or_start
from tests.quality.data import HALVED, JUDGED_SETS, DataSet, held_out, load
from tests.quality.gateways import MODEL, copy, drop, fill, new_settings
from tests.quality.measures import value
from tests.quality.rankings import LEGS, hybrid, legs

FUSED = ("equal weights", "default weights")
EQUAL = {"lexical_weight": 1.0, "lexical_weight_max": 1.0, "vector_weight": 1.0, "identifier_weight": 1.0}
TOP_K = 10
ALLOWED_SHORTFALL = 0.02
WANTED_GAIN = 0.02

Means = dict[str, dict[str, float]]
"""Mean nDCG@10 by data set and ranking."""


def run(root: Path, backends: Sequence[str], keep: Path | None) -> None:
    """Measure on each backend, print, record.

    Args:
        root: the folder of the five data sets.
        backends: `embedded`, `opensearch`.
        keep: where embedded indices stay, so that a second run embeds questions only.

    Raises:
        DataMissing: data is not there.
        BackendError: an index cannot be opened or written.
        MissingPart: there is no OpenSearch node to be had.
        ServiceFailed: the embedding-service did not start.
    """
    sets = [replace(one, questions=[*filter(held_out, one.questions)]) if one.name in HALVED else one for one in load(root, JUDGED_SETS)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kgtest-")))
        indices = keep or folder
        indices.mkdir(parents=True, exist_ok=True)
        urls = {"EMBEDDING_URL": stack.enter_context(running("knowledge-embedding", {"EMBEDDING_MODEL": MODEL}, folder)).url}
        node = stack.enter_context(find_or_start()).url if "opensearch" in backends else ""
        for backend in backends:
            means: Means = {}
            for data in sets:
                settings = new_settings(backend, urls, node, folder)
                means[data.name] = asyncio.run(_measure(data, settings, indices / f"{data.name}.db"))
            report(backend, means, {data.name: len(data.questions) for data in sets})


async def _measure(data: DataSet, settings: Settings, path: Path) -> dict[str, float]:
    """Mean of each ranking; `path` is the embedded index, which is filled if it is not yet."""
    telemetry = set_up_telemetry(SERVICE, DISTRIBUTION)
    embedded = EmbeddedBackend(path, tracer=telemetry.tracer(SERVICE))
    embedder = new_embedder(settings.search, telemetry)
    backend = embedded if settings.search.search_backend == "embedded" else new_backend(settings.search, telemetry)
    adapters = Adapters(backend, embedder, None, None)
    try:
        with Progress(console=Console(stderr=True)) as progress:
            bar = progress.add_task(f"{data.name}: ingesting", total=len(data.documents))
            ingestor = Ingestor(embedded, embedder, text_fields=settings.search.text_fields, info_timeout_s=60)
            await fill(data, ingestor, lambda: progress.advance(bar))
            if backend is not embedded:
                bar = progress.add_task(f"{data.name}: copying", total=None)
                await copy(path, backend, lambda chunks: progress.advance(bar, chunks))
            bar = progress.add_task(f"{data.name}: asking", total=len(data.questions))
            return await _ask(data, settings, adapters, telemetry, lambda: progress.advance(bar))
    finally:
        await adapters.aclose()
        if backend is not embedded:
            await embedded.aclose()
        telemetry.shutdown()
        drop(settings.search)


async def _ask(
    data: DataSet, settings: Settings, adapters: Adapters, telemetry: Telemetry, on_question: Callable[[], None]
) -> dict[str, float]:
    """Mean of each leg, and of the pipeline's answers with equal and with default weights."""
    clock = asyncio.get_running_loop().time
    searches = {"equal weights": settings.search.model_copy(update=EQUAL), "default weights": settings.search}
    pipelines = {
        name: new_gateway(replace(settings, search=search), adapters, telemetry, clock).pipeline for name, search in searches.items()
    }
    values: dict[str, list[float]] = {name: [] for name in (*LEGS, *FUSED)}
    for question in data.questions:
        found = await legs(question, TOP_K, adapters.backend, adapters.embedder)
        for name, pipeline in pipelines.items():
            found[name] = await hybrid(question, TOP_K, pipeline, rerank=False)
        for name, passages in found.items():
            values[name].append(value(data.measure, question, passages))
        on_question()
    return {name: statistics.mean(of) for name, of in values.items()}


def shortfall(means: Mapping[str, float]) -> float:
    """By how much the default weights' list is below the better leg; negative if it is above."""
    return max(means[leg] for leg in LEGS) - means["default weights"]


def report(backend: str, means: Means, questions: Mapping[str, int]) -> None:
    """Print and record the table, and say of each target whether it is met."""
    columns = (*LEGS, *FUSED)
    header = ["data set", "questions", *columns, "against the better leg"]
    rows = [
        [name, str(questions[name]), *(f"{of[column]:.3f}" for column in columns), f"{-shortfall(of):+.3f}"] for name, of in means.items()
    ]
    mean = {column: statistics.mean(of[column] for of in means.values()) for column in columns}
    rows.append(["mean", "", *(f"{mean[column]:.3f}" for column in columns), ""])
    lines = verdicts(means, mean["default weights"] - mean["equal weights"])
    table = Table(*header, title=f"nDCG@10, {backend}", show_edge=False)
    for row in rows:
        table.add_row(*row)
    console = Console(width=160)
    console.print(table)
    console.print(*lines, sep="\n", highlight=False)
    defaults = SearchSettings()
    weights = (
        f"Default weights: LEXICAL {defaults.lexical_weight:g} to {defaults.lexical_weight_max:g}, VECTOR {defaults.vector_weight:g}, "
    )
    weights += (
        f"IDENTIFIER {defaults.identifier_weight:g}. Test questions only, of the xquad sets the half of the articles that decided nothing."
    )
    write_section(
        f"quality fusion {backend}",
        f"Fusion against its legs on {backend}: nDCG@10 through the gateway, without reranking",
        "make eval EVAL_DATA=DIR EVAL_OPTIONS=--fusion",
        [*markdown_table(header, rows), "", *(f"- {line}" for line in lines), "", weights],
    )


def verdicts(means: Means, gain: float) -> list[str]:
    """A sentence for each target."""
    worst = max(means, key=lambda name: shortfall(means[name]))
    missed = [name for name, of in means.items() if shortfall(of) > ALLOWED_SHORTFALL]
    first = f"No set more than {ALLOWED_SHORTFALL:g} below the better of its legs: {'missed by ' + ', '.join(missed) if missed else 'met'}"
    second = f"On average at least {WANTED_GAIN:g} above equal weights: {'met' if gain >= WANTED_GAIN else 'missed'}"
    return [f"{first} (worst: {worst}, {-shortfall(means[worst]):+.3f}).", f"{second} ({gain:+.3f})."]
