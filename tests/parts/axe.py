"""axe-core, which judges the accessibility of a page; from npm at the version and with the checksum of tests/browser/package-lock.json."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.parts import MissingPart, cache_folder

RECIPE = Path(__file__).parents[1] / "browser"
FILES = ("package.json", "package-lock.json")
HOW = "Debian: apt-get install --no-install-recommends nodejs npm; macOS: brew install node"
INSTALL_S = 120


def find(env: Mapping[str, str]) -> Path:
    """The script that a page is to run; installed into the project's cache folder where it is not yet.

    Raises MissingPart if npm is missing or cannot get it; the message says what to do.
    """
    digest = hashlib.sha256(b"".join((RECIPE / name).read_bytes() for name in FILES)).hexdigest()[:8]
    place = cache_folder(env) / f"axe-{digest}"
    script = Path("node_modules", "axe-core", "axe.min.js")
    if not (place / script).exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (place / script).exists():
                _install(place, env)
    return place / script


def _install(place: Path, env: Mapping[str, str]) -> None:
    npm = shutil.which("npm", path=env.get("PATH", ""))
    if npm is None:
        raise MissingPart(f"npm is missing: put it on PATH ({HOW}).")
    with tempfile.TemporaryDirectory(prefix=".axe-", dir=place.parent) as fresh:
        for name in FILES:
            shutil.copy(RECIPE / name, fresh)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=fresh, env=dict(env), capture_output=True, text=True, timeout=INSTALL_S, check=False)
        if done.returncode != 0:
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-10:])
            raise MissingPart(f"npm could not get axe-core; it needs a registry. It said:\n{tail}")
        place.mkdir(exist_ok=True)
        Path(fresh, "node_modules").rename(place / "node_modules")


def main() -> int:
    """Get it ahead of the tests, and print where it is; status 1 and a sentence if it cannot be had."""
    try:
        print(find(os.environ))
    except MissingPart as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
