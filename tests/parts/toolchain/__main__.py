"""`python -m tests.parts.toolchain {chart,cluster,observe,NAME...}`: have these tools; prints the folder for PATH."""

from __future__ import annotations

import argparse
import os
import sys

from tests.parts import MissingPart, say
from tests.parts.toolchain.build import command_folder
from tests.parts.toolchain.catalogue import CHART, CLUSTER, OBSERVE, TOOLS
from tests.parts.toolchain.schemas import locations

SETS = {"chart": CHART, "cluster": CLUSTER, "observe": OBSERVE}


def main() -> int:
    """Build what is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.parts.toolchain", description=__doc__)
    parser.add_argument("wanted", nargs="+", choices=[*SETS, *TOOLS])
    wanted = parser.parse_args().wanted
    names = dict.fromkeys(name for one in wanted for name in SETS.get(one, (one,)))
    try:
        print(command_folder(names, os.environ))
        if "kubeconform" in names:
            locations(os.environ)
    except MissingPart as problem:
        say(str(problem))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
