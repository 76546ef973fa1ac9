"""`python -m tests.quality.cascade --data DIR`: what a small model first, and an early stop, are worth in the reranker-service.

    python -m tests.quality.cascade --data DIR [--questions N] [--keep FOLDER]

Both models score each question's whole head once, one right after the other; everything else is reckoned from those scores and times:
what is scored when the time is up in the order given and in that of the small model, and after how many scores the top is settled.
Replaces its section of docs/benchmarks.md.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from examples.demo.services import ServiceFailed, running
from knowledge.app import DISTRIBUTION, Adapters, new_backend, new_embedder, new_gateway, new_reranker
from knowledge.deadline import Deadline
from knowledge.explain import DEAF
from knowledge.models import Candidate, Query, Scope
from knowledge.pipeline import Hybrid, Pipeline
from knowledge.settings import RerankerSettings, Settings
from knowledge.telemetry import SERVICE
from servicekit.telemetry import set_up_telemetry
from tests.load.figures import MeasurementFailed
from tests.quality.cascade_figures import TOP_K, Head, parts_of, report
from tests.quality.data import DataMissing, DataSet, load
from tests.quality.gateways import MODEL, fill, new_settings
from tests.quality.rankings import DEADLINE_S, IDENTITY

DATA_SETS = ("scifact", "cranfield")
"""In English, as the small model is."""
LARGE, SMALL = MODEL, "ms-marco-minilm-l12-v2"
WITHOUT_CACHES = {"RERANK_CACHE_ENTRIES": "0", "RERANK_PASSAGE_CACHE_MB": "0"}


def main() -> int:
    """Measure, print, record; what could not be measured fails with a sentence."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.quality.cascade", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help=f"a folder with {' and '.join(DATA_SETS)}")
    parser.add_argument("--questions", type=int, default=150, help="(default: %(default)s)")
    parser.add_argument("--keep", type=Path, help="keep the embedded indices here, so that a second run embeds questions only")
    options = parser.parse_args()
    load_before = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    try:
        sets = load(options.data, DATA_SETS)
        measured = {data.name: measure(data, options.questions, options.keep) for data in sets}
    except (DataMissing, MeasurementFailed, ServiceFailed) as error:
        print(f"cascade: {error}", file=sys.stderr)
        return 1
    report(parts_of(measured, LARGE, SMALL), load_before)
    return 0


def measure(data: DataSet, questions: int, keep: Path | None) -> list[Head]:
    """The scored heads of the first questions, over the embedded backend.

    Raises:
        MeasurementFailed: a head was not scored as a whole.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kgtest-")))
        progress = stack.enter_context(Progress(console=Console(stderr=True)))
        urls = {"EMBEDDING_URL": stack.enter_context(running("knowledge-embedding", {"EMBEDDING_MODEL": MODEL}, folder)).url}
        rerankers = [
            stack.enter_context(running("knowledge-reranker", {"RERANK_MODEL": model, **WITHOUT_CACHES}, folder / model)).url
            for model in (LARGE, SMALL)
        ]
        settings = new_settings("embedded", urls, "", folder)
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            settings = replace(settings, search=settings.search.model_copy(update={"embedded_path": keep / f"{data.name}.db"}))
        ingesting = progress.add_task(f"{data.name}: ingesting", total=len(data.documents))
        asking = progress.add_task(f"{data.name}: asking", total=min(questions, len(data.questions)))
        ingested, asked = partial(progress.advance, ingesting), partial(progress.advance, asking)
        return asyncio.run(_measure(data, settings, rerankers, questions, ingested, asked))


async def _measure(
    data: DataSet, settings: Settings, urls: list[str], questions: int, ingested: Callable[[], None], asked: Callable[[], None]
) -> list[Head]:
    telemetry = set_up_telemetry(SERVICE, DISTRIBUTION)
    backend, embedder = new_backend(settings.search, telemetry), new_embedder(settings.search, telemetry)
    adapters = [Adapters(backend, embedder, new_reranker(RerankerSettings(reranker_url=url)), None) for url in urls]
    clock = asyncio.get_running_loop().time
    gateways = [new_gateway(settings, each, telemetry, clock) for each in adapters]
    large, small = (gateway.pipeline for gateway in gateways)
    heads = []
    try:
        await fill(data, gateways[0].ingestor, ingested)
        for number, question in enumerate(data.questions[:questions]):
            query = Query(question.text, (), TOP_K, (Scope("", (), TOP_K, None),))
            hybrid = await large.hybrid(query, IDENTITY, Deadline.after(DEADLINE_S), DEAF)
            (candidates,) = large.heads(hybrid)
            # In turns, so that neither always finds the machine warmer.
            first, second = (large, small) if number % 2 else (small, large)
            found = {each: await _score(each, hybrid, candidates) for each in (first, second)}
            (by_large, large_ms), (by_small, small_ms) = found[large], found[small]
            heads.append(Head(question, hybrid.scopes[0].candidates, len(candidates), by_large, by_small, large_ms, small_ms))
            asked()
    finally:
        for each in adapters:
            await each.aclose()
        telemetry.shutdown()
    return heads


async def _score(pipeline: Pipeline, hybrid: Hybrid, head: Sequence[Candidate]) -> tuple[dict[str, float], float]:
    """The scores of a head by passage, and the milliseconds that they took.

    Raises:
        MeasurementFailed: not all were scored.
    """
    scores = await pipeline.score(hybrid, [head], Deadline.after(DEADLINE_S))
    if len(scores.by_chunk) != len(head) or scores.report.elapsed_ms is None:
        raise MeasurementFailed(f"{scores.report.status}, {len(scores.by_chunk)} of {len(head)} scored")
    return dict(scores.by_chunk), scores.report.elapsed_ms


if __name__ == "__main__":
    raise SystemExit(main())
