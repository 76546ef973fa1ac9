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
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from platformdirs import user_cache_path
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.demo.services import Service, ServiceFailed, running
from modelkit.errors import ModelError
from tests.load.figures import MeasurementFailed
from tests.load.rerank import measure, peers
from tests.load.rerank.measure import SERVE, AgainstPeers, Overload, reranker
from tests.load.rerank.partial import Curve
from tests.load.rerank.partial import measure as measure_partial
from tests.load.rerank.report import Measured, report
from tests.load.rerank.shape import MODEL, RandomModel, random_model
from tests.load.rerank.texts import Texts
from tests.quality.data import DataMissing, load

DATA = Path("examples/houseplants")
LATE_MODEL = "multilingual-e5-small"
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
        self.sizes: list[tuple[str, int, int, float]] = []

    def run(self) -> Measured:
        """All of it, one after the other: what is measured has the machine to itself."""
        model = random_model(self.cache / "shape", self.say)
        with self.serving("shape", MODEL, model) as service:
            task = self.task("against one padded fp32 batch", self.options.rounds)
            seed = asyncio.run(measure.against_seed(service.url, model, self.texts, self.options.rounds, self.cores, task))
            task = self.task("at deadlines", self.options.rounds)
            deadlines = asyncio.run(measure.at_deadlines(service.url, self.texts, self.options.rounds, task))
            self._size(service, "shape of bge-reranker-v2-m3", (15,))
            memory_mb = measure.peak_mb(service)
        with self.serving("minilm", peers.MODEL) as service:
            self._size(service, peers.MODEL, (5, 15, 50))
            repeated_ms = asyncio.run(measure.repeated(service.url, self.texts, 50))
            overload = [self._overload(service, times) for times in OVERLOADS]
            against = {} if self.options.without_peers else self._peers(service)
        self.sizes.sort(key=lambda row: (row[0] != peers.MODEL, row[0], row[2]))
        return Measured(seed, deadlines, memory_mb, repeated_ms, against, overload, self._curve(), self.sizes)

    def _peers(self, service: Service) -> dict[str, AgainstPeers]:
        with measure.all_peers(self.cache / "peers", self.say) as running:
            found = {}
            for length, make in (("500 characters", self.texts.equal), ("80 to 1,800 characters", self.texts.mixed)):
                task = self.task(f"against its peers, {length}", 4 * self.options.rounds)
                found[length] = asyncio.run(measure.against_peers(service.url, running, make, 4 * self.options.rounds, task))
        return found

    def _overload(self, service: Service, times: float) -> Overload:
        task = self.task(f"{times:g} times the load it can take", 0)
        return asyncio.run(measure.overloaded(service.url, self.texts, times, OVERLOAD_S, DEADLINE_S, task))

    def _size(self, service: Service, name: str, passages: tuple[int, ...]) -> None:
        for count in passages:
            seconds = asyncio.run(measure.latency(service.url, self.texts, count, self.options.rounds))
            self.sizes.append((name, self.cores, count, seconds))

    def _curve(self) -> Curve | None:
        try:
            (data,) = load(self.options.data, ("xquad-de",))
        except DataMissing:
            return None
        if data.measure != "nDCG@10":
            return None
        with self.serving("late", LATE_MODEL) as service, self._embedding() as embedding:
            task = self.task("partial answers", min(self.options.questions, len(data.questions)))
            return measure_partial(data, embedding.url, service.url, self.options.questions, task)

    @contextmanager
    def _embedding(self) -> Iterator[Service]:
        with running("knowledge-embedding", {"EMBEDDING_MODEL": LATE_MODEL}, self.folder) as service:
            yield service

    @contextmanager
    def serving(self, name: str, model: str, files: RandomModel | None = None) -> Iterator[Service]:
        """The service with this model."""
        command = (sys.executable, str(SERVE), str(files.int8.folder)) if files else ()
        with reranker(self.folder / name, {"RERANK_MODEL": model}, command) as service:
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
