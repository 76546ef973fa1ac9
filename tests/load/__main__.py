"""`make bench`: the gateway against its parts, fallbacks against their deadline, memory against its limits."""

import argparse
import asyncio
import os
import signal
import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.demo.services import ServiceFailed
from tests.load import embedded, lateness, memory, overhead
from tests.load.figures import MeasurementFailed
from tests.load.report import Measured, report
from tests.load.stack import Stack, running_stack
from tests.parts import MissingPart
from tests.parts.opensearch import NodeError

ROUNDS = 3
INTERRUPTED = 130
COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())


def main() -> int:
    """Measure, print, record. A missed target is a result; only what could not be measured fails, with a sentence."""
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often everything is measured (default: %(default)s)")
    rounds = max(1, parser.parse_args().rounds)
    # So that everything that was started also ends when this is told to.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    console = Console(stderr=True)
    try:
        with running_stack(lambda line: console.print(f"bench: {line}", highlight=False)) as stack:
            measured = asyncio.run(_measure(stack, rounds, load, console))
    except (MissingPart, NodeError, ServiceFailed, MeasurementFailed) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: stopped; nothing was recorded", file=sys.stderr)
        return INTERRUPTED
    report(measured)
    return 0


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
