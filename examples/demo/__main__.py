"""`python -m examples.demo demo | up | down`: what `make demo`, `make up` and `make down` run."""

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

import httpx

from examples.demo.services import ServiceFailed
from examples.demo.stack import DemoFailed, bring_down, bring_up, remember
from examples.demo.tour import Tour, TourFailed


def say(line: str) -> None:
    """One line of progress."""
    print(f"demo: {line}", flush=True)


WITHOUT_CACHES = {"knowledge-reranker": {"RERANK_CACHE_ENTRIES": "0", "RERANK_PASSAGE_CACHE_MB": "0"}}
"""The tour asks one question again and again, and each time it shall cost what it costs the first time."""


def demo(corpus: Path) -> None:
    """Everything, then stay up until Ctrl-C; without a terminal end after the tour."""
    stack = bring_up(corpus, say, more=WITHOUT_CACHES)
    try:
        tour = Tour(stack)
        tour.run()
        print()
        tour.farewell()
        if sys.stdin.isatty():
            say("running until Ctrl-C")
            signal.pause()
    except KeyboardInterrupt:
        say("stopping")
    finally:
        stack.stop()


def up(corpus: Path) -> None:
    """The services in the background."""
    bring_down(lambda _: None)
    stack = bring_up(corpus, say, detached=True)
    remember(stack)
    Tour(stack).farewell()
    say("`make down` stops them")


def main() -> int:
    """Run one command; failures are sentences."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("command", choices=("demo", "up", "down"))
    parser.add_argument("--corpus", type=Path, default=Path("examples/houseplants/corpus"))
    arguments = parser.parse_args()

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        if arguments.command == "down":
            bring_down(say)
        else:
            {"demo": demo, "up": up}[arguments.command](arguments.corpus)
    except (DemoFailed, ServiceFailed, TourFailed, httpx.HTTPError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
