"""Fetch a node, or run one by hand: `python -m tests.parts.opensearch {install,up,down}`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.parts import MissingPart, say, state_folder
from tests.parts.opensearch import detached
from tests.parts.opensearch.find import find_launch, find_source
from tests.parts.opensearch.node import NodeError
from tests.parts.opensearch.secured import find_oldest


def main() -> int:
    """Do what the command line asks; results go to standard output, all else to standard error."""
    options = _parser().parse_args()
    try:
        if options.command == "install":
            say(f"the tests' OpenSearch: {find_source(os.environ).origin}")
        elif options.command == "up":
            launch = (find_oldest if options.oldest else find_launch)(os.environ)
            print(detached.start(launch, options.data.resolve(), options.port, os.environ))
        else:
            say("stopped" if detached.stop(options.data.resolve()) else "not running")
    except (MissingPart, NodeError) as problem:
        say(str(problem))
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.parts.opensearch", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install", help="download what the tests' node needs, and start nothing")
    up = commands.add_parser("up", help="start a node that keeps running, and print its URL")
    up.add_argument("--port", type=int, default=9200)
    up.add_argument("--oldest", action="store_true", help="the oldest supported version instead of the present one")
    down = commands.add_parser("down", help="stop the node that `up` started; its data stay")
    for command in (up, down):
        command.add_argument("--data", type=Path, default=state_folder(os.environ) / "opensearch", help="folder of the node's state")
    return parser


if __name__ == "__main__":
    sys.exit(main())
