"""Put a node together from published jars, once, in the project's cache folder."""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.parts import MissingPart, cache_folder, say
from tests.parts.opensearch import layout, layout_secured

__all__ = ["CURRENT", "SECURED", "VERSION", "Release", "find_maven", "install", "installed"]

_HERE: Final = Path(__file__).parent
_FETCH_S: Final = 900


@dataclass(frozen=True)
class Release:
    """What is fetched, and where it goes.

    `layouts` are the files that decide about the latter: an installation that others made is replaced.
    """

    pom: Path
    folder: str
    size: str
    arrange: Callable[[Path, Path, str], None]
    layouts: tuple[Path, ...]

    @property
    def version(self) -> str:
        """The pinned version of the server."""
        found = re.search(r"<opensearch\.version>(.+)</", self.pom.read_text())
        if found is None:
            raise ValueError(f"{self.pom} pins no opensearch.version")
        return found[1]

    @property
    def fingerprint(self) -> str:
        """What changes whenever an installation made by other pins or in another layout must be replaced."""
        return hashlib.sha256(b"".join(part.read_bytes() for part in (self.pom, *self.layouts))).hexdigest()

    def home(self, env: Mapping[str, str]) -> Path:
        """Where it is installed."""
        return cache_folder(env) / f"{self.folder}-{self.version}"


_LAYOUT: Final = _HERE / "layout.py"
CURRENT: Final = Release(_HERE / "pom.xml", "opensearch", "92 MB", layout.arrange, (_LAYOUT,))
SECURED: Final = Release(
    _HERE / "pom-secured.xml", "opensearch-secured", "98 MB", layout_secured.arrange, (_LAYOUT, _HERE / "layout_secured.py")
)
VERSION: Final = CURRENT.version


def find_maven(env: Mapping[str, str]) -> str | None:
    """Return the `mvn` on PATH."""
    return shutil.which("mvn", path=env.get("PATH", ""))


def installed(env: Mapping[str, str], release: Release = CURRENT) -> Path | None:
    """Return the finished installation that fits the present pins, if there is one."""
    home = release.home(env)
    try:
        return home if _stamp(home).read_text() == release.fingerprint else None
    except FileNotFoundError:
        return None


def install(env: Mapping[str, str], java: Path, release: Release = CURRENT) -> Path:
    """Return the installation, fetching it first if there is none; safe to call from several processes.

    Raises MissingPart if there is no Maven, or if Maven cannot fetch the jars.
    """
    if home := installed(env, release):
        return home
    maven = find_maven(env)
    if maven is None:
        raise MissingPart(f"OpenSearch {release.version} is not installed yet: install Maven, which fetches it.")
    home = release.home(env)
    home.parent.mkdir(parents=True, exist_ok=True)
    with _locked(home.with_name(f"{home.name}.lock")):
        if installed(env, release) is None:
            _build(home, release, maven, _maven_environment(env, java))
    return home


def _build(home: Path, release: Release, maven: str, env: Mapping[str, str]) -> None:
    """Make the installation beside its place and move it there whole."""
    began = time.monotonic()
    new = home.with_name(f"{home.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    say(f"fetching OpenSearch {release.version} ({release.size}) ...")
    _fetch(maven, release, new / "jars", env)
    release.arrange(new / "jars", new, release.version)
    _stamp(new).write_text(release.fingerprint)
    if home.exists():
        shutil.rmtree(home)
    new.rename(home)
    say(f"OpenSearch {release.version} installed in {home} ({time.monotonic() - began:.0f} s)")


def _fetch(maven: str, release: Release, jars: Path, env: Mapping[str, str]) -> None:
    command = [maven, "--batch-mode", "--quiet", "--file", str(release.pom)]
    command += ["dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
    try:
        done = subprocess.run(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_FETCH_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise MissingPart(f"Maven did not fetch OpenSearch {release.version} within {_FETCH_S} s.") from None
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-20:])
        raise MissingPart(f"Maven could not fetch OpenSearch {release.version}; it said:\n{tail}")


def _maven_environment(env: Mapping[str, str], java: Path) -> dict[str, str]:
    """Return `env`, with a Java for Maven if it would find none."""
    if env.get("JAVA_HOME") or shutil.which("java", path=env.get("PATH", "")):
        return dict(env)
    return {**env, "JAVA_HOME": str(java.parent.parent)}


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold the lock on `file`; the system lets go of it even if this process is killed."""
    with file.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another process that installs the same OpenSearch ...")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _stamp(home: Path) -> Path:
    return home / "installed-from.sha256"
