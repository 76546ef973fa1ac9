"""`make bench-rerank`: the reranker-service against a padded batch, against its peers, under deadlines and overload.

    python -m tests.load.rerank [--data DIR] [--rounds N] [--without-peers] [--questions N]

Replaces its section of docs/benchmarks.md. The first run makes a model of 3 GB and installs the peers, which takes gigabytes too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from platformdirs import user_cache_path
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.demo.services import Service, ServiceFailed, running
from modelkit import LineProgress, ensure
from modelkit.cpu import this_arithmetic
from modelkit.errors import ModelError
from modelkit.manifest import OPENVINO
from modelkit.quantization import quantize
from tests.load.figures import MeasurementFailed
from tests.load.rerank import measure, peers
from tests.load.rerank.measure import SERVE, AgainstPeers, Overload, reranker
from tests.load.rerank.partial import Curve
from tests.load.rerank.partial import measure as measure_partial
from tests.load.rerank.report import Measured, ShapeFigures, report
from tests.load.rerank.seed import PaddedBatch
from tests.load.rerank.shape import MODEL, random_model
from tests.load.rerank.texts import Texts
from tests.quality.data import DataMissing, load

DATA = Path("examples/houseplants")
LATE_MODEL = "multilingual-e5-small"
SHAPE = "shape of bge-reranker-v2-m3"
OVERLOADS = (1.0, 4.0)
OVERLOAD_S, DEADLINE_S = 20.0, 1.5
COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())


class Bench:
    """One run: what was asked for, and where progress is told."""

    def __init__(self, options: argparse.Namespace, folder: Path, progress: Progress) -> None:
        self.options, self.folder, self.progress = options, folder, progress
        self.cache = user_cache_path("knowledge-gateway") / "bench"
        self.texts = Texts(options.data, ("scifact",))
        self.cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
        bf16 = this_arithmetic().bf16_pays
        self.openvino = [precision for precision in OPENVINO if bf16 or precision != "bf16"]
        self.minilm_precisions = ("int8", "bf16") if bf16 else ("int8",)
        self.sizes: list[tuple[str, str, int, int, float]] = []

    def run(self) -> Measured:
        """All of it, one after the other: what is measured has the machine to itself."""
        minilm = self._minilm()
        shapes = self._shapes()
        with self.serving("minilm", peers.MODEL, "auto", minilm) as service:
            repeated_ms = asyncio.run(measure.repeated(service.url, self.texts, 50))
            overload = [self._overload(service, times) for times in OVERLOADS]
        against = {} if self.options.without_peers else self._peers(minilm)
        for cores in sorted({1, self.cores}):
            for precision in self.minilm_precisions:
                with measure.only_cores(cores), self.serving("sizes", peers.MODEL, precision, minilm) as service:
                    self._size(service, peers.MODEL, precision, cores, (5, 15, 50))
        return Measured(shapes, repeated_ms, against, overload, self._curve(), self.sizes)

    def _minilm(self) -> Path:
        """A model cache of the bench's own, which holds what `auto` has to choose from."""
        cache = self.cache / "models"
        quantize(ensure(peers.MODEL, cache), cache, LineProgress(self.say), "bf16")
        return cache

    def _shapes(self) -> list[ShapeFigures]:
        """The large shape at each precision; at deadlines as `auto`."""
        model = random_model(self.cache / "shape", self.texts, self.say)
        batch, found = PaddedBatch(model["fp32"], self.cores), []
        for precision in ("auto", "int8", *self.openvino):
            with self.serving("shape", MODEL, precision, model["int8"].folder) as service:
                task = self.task(f"{precision} against one padded fp32 batch", self.options.rounds)
                seed = asyncio.run(measure.against_seed(service.url, batch, self.texts, self.options.rounds, task))
                figures = ShapeFigures(precision, measure.precision_of(service), seed, measure.peak_mb(service))
                found.append(figures)
                if precision == "auto":
                    task = self.task("at deadlines", self.options.rounds)
                    figures.deadlines = asyncio.run(measure.at_deadlines(service.url, self.texts, self.options.rounds, task))
                else:
                    self._size(service, SHAPE, precision, self.cores, (15,))
        for precision in ("int8", "int8-static"):
            with measure.only_cores(1), self.serving("shape", MODEL, precision, model["int8"].folder) as service:
                self._size(service, SHAPE, precision, 1, (15,))
        return found

    def _peers(self, minilm: Path) -> dict[str, AgainstPeers]:
        with ExitStack() as stack:
            running = stack.enter_context(measure.all_peers(self.cache / "peers", self.say))
            ours = {name: stack.enter_context(self.serving(name, peers.MODEL, name, minilm)) for name in self.minilm_precisions}
            urls, found = {name: service.url for name, service in ours.items()}, {}
            for length, make in (("500 characters", self.texts.equal), ("80 to 1,800 characters", self.texts.mixed)):
                task = self.task(f"against its peers, {length}", 4 * self.options.rounds)
                found[length] = asyncio.run(measure.against_peers(urls, running, make, 4 * self.options.rounds, task))
        return found

    def _overload(self, service: Service, times: float) -> Overload:
        task = self.task(f"{times:g} times the load it can take", 0)
        return asyncio.run(measure.overloaded(service.url, self.texts, times, OVERLOAD_S, DEADLINE_S, task))

    def _size(self, service: Service, name: str, precision: str, cores: int, passages: tuple[int, ...]) -> None:
        for count in passages:
            seconds = asyncio.run(measure.latency(service.url, self.texts, count, self.options.rounds))
            self.sizes.append((name, precision, cores, count, seconds))

    def _curve(self) -> Curve | None:
        try:
            (data,) = load(self.options.data, ("xquad-de",))
        except DataMissing:
            return None
        if data.measure != "nDCG@10":
            return None
        with self.serving("late", LATE_MODEL, "int8") as service, self._embedding() as embedding:
            task = self.task("partial answers", min(self.options.questions, len(data.questions)))
            return measure_partial(data, embedding.url, service.url, self.options.questions, task)

    @contextmanager
    def _embedding(self) -> Iterator[Service]:
        with running("knowledge-embedding", {"EMBEDDING_MODEL": LATE_MODEL}, self.folder) as service:
            yield service

    @contextmanager
    def serving(self, name: str, model: str, precision: str, files: Path | None = None) -> Iterator[Service]:
        """The service with this model, from a model cache or, of the random one, from its folder."""
        settings = {"RERANK_MODEL": model, "RERANK_PRECISION": precision, **({"MODEL_CACHE_DIR": str(files)} if files else {})}
        command = (sys.executable, str(SERVE), str(files), precision) if model == MODEL else ()
        with reranker(self.folder / name, settings, command) as service:
            yield service

    def task(self, description: str, total: int) -> Callable[[], None]:
        """A bar of its own; how to tell of a step."""
        return partial(self.progress.advance, self.progress.add_task(description, total=total or None))

    def say(self, line: str) -> None:
        """One line of progress."""
        self.progress.console.print(f"bench: {line}", highlight=False)


def main() -> int:
    """Measure, print, record. A missed target is a result; only what could not be measured fails, with a sentence."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.load.rerank", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=DATA, help="a folder of data sets (scifact, xquad-de), or one data set (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="requests of the slowest kind (default: %(default)s)")
    parser.add_argument("--questions", type=int, default=400, help="for partial answers (default: %(default)s)")
    parser.add_argument("--without-peers", action="store_true", help="leave the peers out")
    options = parser.parse_args()
    load_before = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    try:
        with TemporaryDirectory(prefix="kgtest-") as folder, Progress(*COLUMNS, console=Console(stderr=True)) as progress:
            bench = Bench(options, Path(folder), progress)
            measured = bench.run()
    except (MeasurementFailed, ServiceFailed, DataMissing, ModelError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    report(measured, bench.texts.name, load_before)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
