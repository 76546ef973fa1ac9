"""Build an image that cannot be pulled here, and print its name: `python -m tests.e2e.images opensearch`, or `jaeger`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from tests.e2e.images import jaeger, opensearch
from tests.parts import MissingPart, say

BUILDERS = {"jaeger": jaeger.build, "opensearch": opensearch.build}


def main() -> int:
    """Build what the command line names; the name of the image goes to standard output, all else to standard error."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.images", description=__doc__)
    parser.add_argument("image", choices=sorted(BUILDERS))
    parser.add_argument("arguments", nargs="*", help="for `docker build`, after `--`; for example --build-arg PYTHON_IMAGE=NAME")
    options = parser.parse_args()
    try:
        print(BUILDERS[options.image](os.environ, options.arguments))
    except MissingPart as problem:
        say(str(problem))
        return 1
    except subprocess.CalledProcessError as problem:
        say(f"docker build failed with status {problem.returncode}; what it said is above.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
