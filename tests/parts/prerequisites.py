"""`make prerequisites`: what is missing on this machine, all at once, with one line each that says how to get it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.parts.axe import HOW as NPM
from tests.parts.browser import HOW as CHROMIUM
from tests.parts.browser import NAMES as BROWSERS
from tests.parts.opensearch.install import installed
from tests.parts.opensearch.java import find_java
from tests.parts.toolchain.catalogue import CHART


@dataclass(frozen=True, slots=True)
class Prerequisite:
    """Something the project needs, whether it is here, and how to get it."""

    name: str
    needed_for: str
    found: Callable[[Mapping[str, str]], bool]
    how: str


def _python(_: Mapping[str, str]) -> bool:
    return sys.version_info >= (3, 11)


def _command(name: str) -> Callable[[Mapping[str, str]], bool]:
    return lambda environ: shutil.which(name, path=environ.get("PATH", "")) is not None


def _search_node(environ: Mapping[str, str]) -> bool:
    """A node by URL, an engine that answers, or Java with Maven; the node's own finder looks more closely."""
    if environ.get("TEST_OPENSEARCH_URL") or _command("opensearch")(environ):
        return True
    if _command("docker")(environ):
        answered = subprocess.run(["docker", "info"], capture_output=True, timeout=10, check=False, env=dict(environ))
        if answered.returncode == 0:
            return True
    return (_command("mvn")(environ) or installed(environ) is not None) and find_java(environ) is not None


PREREQUISITES = (
    Prerequisite("Python 3.11+", "everything", _python, "install it, or name another one: make PYTHON=python3.12 ..."),
    Prerequisite("make", "everything", _command("make"), "Debian: apt-get install make; macOS: xcode-select --install"),
    Prerequisite("git", "make check", _command("git"), "Debian: apt-get install git"),
    Prerequisite(
        "OpenSearch",
        "make test",
        _search_node,
        "Docker, or Java 21+ with Maven (Debian: apt-get install maven), or TEST_OPENSEARCH_URL of a node",
    ),
    Prerequisite(
        "Go, or Helm and its checkers",
        "make chart-test",
        lambda environ: _command("go")(environ) or all(_command(name)(environ) for name in CHART),
        f"Go 1.24+, which builds them once; or put {', '.join(CHART)} on PATH, at the versions in tests/parts/toolchain/catalogue.py",
    ),
    Prerequisite(
        "Prometheus",
        "make test, make observe, make incident",
        lambda environ: all(_command(name)(environ) for name in ("prometheus", "promtool")),
        "Debian: apt-get install prometheus; macOS: brew install prometheus",
    ),
    Prerequisite("Chromium", "make test, make incident", lambda environ: any(_command(name)(environ) for name in BROWSERS), CHROMIUM),
    Prerequisite("npm", "make test, make incident: axe-core", _command("npm"), NPM),
)


def main() -> int:
    """Print one line a prerequisite; status 1 if any is missing."""
    missing = 0
    for one in PREREQUISITES:
        here = one.found(os.environ)
        missing += not here
        print(f"{'ok     ' if here else 'missing'} {one.name} (for {one.needed_for})" + ("" if here else f": {one.how}"))
    return 1 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
