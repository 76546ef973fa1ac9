"""Put a node together from published jars, once, in the project's cache folder."""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.parts import MissingPart, cache_folder, say
from tests.parts.opensearch.layout import arrange

__all__ = ["VERSION", "find_maven", "install", "installed"]

_HERE: Final = Path(__file__).parent
_POM: Final = _HERE / "pom.xml"
_FETCH_S: Final = 900
_SIZE: Final = "92 MB"


def _pinned(name: str) -> str:
    found = re.search(rf"<{re.escape(name)}>(.+)</", _POM.read_text())
    if found is None:
        raise ValueError(f"{_POM} pins no {name}")
    return found[1]


VERSION: Final = _pinned("opensearch.version")


def find_maven(env: Mapping[str, str]) -> str | None:
    """Return the `mvn` on PATH."""
    return shutil.which("mvn", path=env.get("PATH", ""))


def installed(env: Mapping[str, str]) -> Path | None:
    """Return the finished installation that fits the present pins, if there is one."""
    home = _home(env)
    try:
        return home if _stamp(home).read_text() == _fingerprint() else None
    except FileNotFoundError:
        return None


def install(env: Mapping[str, str], java: Path) -> Path:
    """Return the installation, fetching it first if there is none; safe to call from several processes.

    Raises MissingPart if there is no Maven, or if Maven cannot fetch the jars.
    """
    if home := installed(env):
        return home
    maven = find_maven(env)
    if maven is None:
        raise MissingPart(f"OpenSearch {VERSION} is not installed yet: install Maven, which fetches it.")
    home = _home(env)
    home.parent.mkdir(parents=True, exist_ok=True)
    with _locked(home.with_name(f"{home.name}.lock")):
        if installed(env) is None:
            _build(home, maven, _maven_environment(env, java))
    return home


def _build(home: Path, maven: str, env: Mapping[str, str]) -> None:
    """Make the installation beside its place and move it there whole."""
    began = time.monotonic()
    new = home.with_name(f"{home.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    say(f"fetching OpenSearch {VERSION} ({_SIZE}) ...")
    _fetch(maven, new / "jars", env)
    arrange(new / "jars", new, VERSION)
    _stamp(new).write_text(_fingerprint())
    if home.exists():
        shutil.rmtree(home)
    new.rename(home)
    say(f"OpenSearch {VERSION} installed in {home} ({time.monotonic() - began:.0f} s)")


def _fetch(maven: str, jars: Path, env: Mapping[str, str]) -> None:
    command = [maven, "--batch-mode", "--quiet", "--file", str(_POM)]
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
        raise MissingPart(f"Maven did not fetch OpenSearch {VERSION} within {_FETCH_S} s.") from None
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-20:])
        raise MissingPart(f"Maven could not fetch OpenSearch {VERSION}; it said:\n{tail}")


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
            say(f"waiting for another process that installs OpenSearch {VERSION} ...")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _home(env: Mapping[str, str]) -> Path:
    return cache_folder(env) / f"opensearch-{VERSION}"


def _stamp(home: Path) -> Path:
    return home / "installed-from.sha256"


def _fingerprint() -> str:
    """Return what changes whenever an installation made by other pins or in another layout must be replaced."""
    parts = (_POM, _HERE / "layout.py")
    return hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()
