"""`make bench`: the gateway against its parts and against a raw search at growing sizes, ingestion, late fallbacks, memory.

    python -m tests.load [parts] [scale] [ingest] [--rounds N] [--sizes N,N] [--data DIR]

Without a name everything is measured. Each measurement replaces its own section of docs/benchmarks.md.
"""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.demo.services import ServiceFailed
from tests.load import embedded, ingest, lateness, memory, overhead, scale
from tests.load.figures import MeasurementFailed
from tests.load.passages import Passages
from tests.load.report import Measured, report
from tests.load.scale_report import report_ingest, report_search
from tests.load.scale_stack import running_node
from tests.load.stack import Stack, running_stack
from tests.parts import MissingPart
from tests.parts.opensearch import NodeError
from tests.quality.data import DataMissing

ROUNDS = 3
SIZES = (592, 20_000, 200_000)
DATA = Path("examples/houseplants")
INTERRUPTED = 130
COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
FAILURES = (MissingPart, NodeError, ServiceFailed, MeasurementFailed, DataMissing)


def main() -> int:
    """Measure, print, record. A missed target is a result; only what could not be measured fails, with a sentence."""
    console = Console(stderr=True)
    measurements = {"parts": _parts, "scale": _scale, "ingest": _ingest}
    options = _options(list(measurements))
    # So that everything that was started also ends when this is told to.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for name in options.what or measurements:
            measurements[name](options, console)
    except FAILURES as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: stopped; what was not finished was not recorded", file=sys.stderr)
        return INTERRUPTED
    return 0


def _options(names: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=[*names, []], metavar="|".join(names), help="what is measured (default: all)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often the parts are measured (default: %(default)s)")
    parser.add_argument("--sizes", type=_sizes, default=SIZES, help="numbers of passages, ascending (default: 592,20000,200000)")
    parser.add_argument("--data", type=Path, default=DATA, help="the data set that passages are copied from (default: %(default)s)")
    return parser.parse_args()


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(sorted({int(size) for size in text.split(",")}))


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


def _say(console: Console, line: str) -> None:
    console.print(f"bench: {line}", highlight=False)


def _parts(options: argparse.Namespace, console: Console) -> None:
    load, rounds = _load(), max(1, options.rounds)
    with running_stack(partial(_say, console)) as stack:
        measured = asyncio.run(_measure(stack, rounds, load, console))
    report(measured)


def _scale(options: argparse.Namespace, console: Console) -> None:
    load, passages = _load(), Passages(options.data)
    with running_node(partial(_say, console)) as node, Progress(*COLUMNS, console=console) as progress:
        found = scale.measure(node, passages, options.sizes, partial(_task, progress))
    report_search(found, passages.name, load)


def _ingest(options: argparse.Namespace, console: Console) -> None:
    load, passages = _load(), Passages(options.data)
    with running_node(partial(_say, console)) as node, Progress(*COLUMNS, console=console) as progress:
        found = asyncio.run(ingest.measure(node, passages, _task(progress, "writing by both sides", ingest.steps())))
    report_ingest(found, passages.name, load)


def _task(progress: Progress, description: str, total: int) -> Callable[[int], None]:
    bar = progress.add_task(description, total=total)
    return lambda steps: progress.advance(bar, steps)


async def _measure(stack: Stack, rounds: int, load: str, console: Console) -> Measured:
    """One after the other: what is measured has the machine to itself."""
    with Progress(*COLUMNS, console=console) as progress:
        bar = progress.add_task("the gateway and its parts", total=overhead.steps(rounds))
        times, excerpt_chars = await overhead.measure(stack, rounds, lambda: progress.advance(bar))
        # Before a third gateway joins.
        held = memory.measure(stack)
        bar_late = progress.add_task("late, loading and refusing rerankers", total=lateness.steps(rounds))
        late = await lateness.measure(stack, rounds, lambda: progress.advance(bar_late))
        bar_alone = progress.add_task("the embedded backend alone", total=embedded.steps(rounds))
        alone = await embedded.measure(stack, rounds, lambda: progress.advance(bar_alone))
    return Measured(rounds, times, excerpt_chars, late, alone, held, load)


if __name__ == "__main__":
    raise SystemExit(main())
