"""The two ways to run a node as a process of this machine: a distribution on PATH, or the installed jars."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from tests.parts import say
from tests.parts.opensearch.install import VERSION, find_maven, install, installed
from tests.parts.opensearch.java import find_java

__all__ = ["Command", "Distribution", "Jars", "Jvm", "Launch", "find_distribution", "find_jars"]

_SERIES: Final = "3."
_ANSWER_S: Final = 60


@dataclass(frozen=True)
class Jvm:
    """How the node's virtual machine is set up."""

    heap: str = "512m"
    # One compiler tier halves the time to start and costs throughput: right for tests, wrong for load.
    quick: bool = True

    def flags(self, state: Path) -> list[str]:
        """Return the flags that every way of starting a node shares."""
        flags = [f"-Xms{self.heap}", f"-Xmx{self.heap}", f"-Djava.io.tmpdir={state / 'tmp'}"]
        if self.quick:
            flags.append("-XX:TieredStopAtLevel=1")
        if os.geteuid() == 0:
            # The server refuses to run as root, and learns who it is through JNA: keep JNA from its native half.
            flags += ["-Djna.boot.library.path=none", "-Djna.nosys=true", "-Djna.nounpack=true"]
        return flags


class Command(NamedTuple):
    """What to execute, and the variables it needs beyond its parent's."""

    argv: list[str]
    environment: Mapping[str, str]


class Launch(Protocol):
    """One way to run a node."""

    @property
    def origin(self) -> str:
        """Where the node comes from, in words."""

    @property
    def settings(self) -> Mapping[str, bool]:
        """Settings that this way needs beyond the common ones."""

    def prepare(self, state: Path, jvm: Jvm) -> Command:
        """Complete `state`/config and return the command that runs the node in the foreground."""


@dataclass(frozen=True)
class Distribution:
    """A full distribution whose `opensearch` is on PATH."""

    executable: Path
    home: Path
    origin: str = "opensearch on PATH"

    @property
    def settings(self) -> Mapping[str, bool]:
        """Switch off the security plugin, which would want certificates; without it the setting is unknown."""
        return {"plugins.security.disabled": True} if (self.home / "plugins/opensearch-security").is_dir() else {}

    def prepare(self, state: Path, jvm: Jvm) -> Command:
        """Bring the distribution's own flags along, which its start script reads from the folder of settings."""
        own, copied = self.home / "config/jvm.options", state / "config/jvm.options"
        copied.write_bytes(own.read_bytes() if own.is_file() else b"-XX:+UseSerialGC\n")
        # The script puts OPENSEARCH_JAVA_OPTS last, so that ours win.
        environment = {
            "OPENSEARCH_PATH_CONF": str(state / "config"),
            "OPENSEARCH_JAVA_OPTS": " ".join(jvm.flags(state)),
        }
        return Command([str(self.executable)], environment)


@dataclass(frozen=True)
class Jars:
    """The installation made of published jars."""

    home: Path
    java: Path
    origin: str = f"jars of OpenSearch {VERSION}"
    flags: tuple[str, ...] = ("--enable-native-access=ALL-UNNAMED", "--add-modules=jdk.incubator.vector")
    # No plugin among the jars of the present version asks for any.
    settings: Mapping[str, bool] = field(default_factory=dict)

    def prepare(self, state: Path, jvm: Jvm) -> Command:
        """Return the command with the flags that a distribution's start script would set."""
        properties = {
            "file.encoding": "UTF-8",
            "java.awt.headless": "true",
            "java.locale.providers": "SPI,CLDR",
            "log4j.shutdownHookEnabled": "false",
            "log4j2.disable.jmx": "true",
            "io.netty.noUnsafe": "true",
            "io.netty.noKeySetOptimization": "true",
            "io.netty.recycler.maxCapacityPerThread": "0",
            "opensearch.path.home": str(self.home),
            "opensearch.path.conf": str(state / "config"),
            "opensearch.distribution.type": "tar",
            "opensearch.bundled_jdk": "false",
        }
        argv = [str(self.java), "-XX:+UseSerialGC", *self.flags, *(f"-D{name}={value}" for name, value in properties.items())]
        argv += [*jvm.flags(state), "-cp", f"{self.home}/lib/*", "org.opensearch.bootstrap.OpenSearch"]
        return Command(argv, {})


def find_distribution(env: Mapping[str, str]) -> Distribution | None:
    """Return the distribution on PATH if its version fits and it has the k-NN plugin."""
    found = shutil.which("opensearch", path=env.get("PATH", ""))
    if found is None:
        return None
    executable = Path(found).resolve()
    home = next((home for home in _homes(executable) if (home / "lib").is_dir()), None)
    if home is None or not (home / "plugins/opensearch-knn").is_dir():
        say(f"passing over {found}: it has no k-NN plugin")
        return None
    version = _version_of(executable, env)
    if version is None or not version.startswith(_SERIES):
        say(f"passing over {found}: its version is {version or 'unknown'}, not {_SERIES}x")
        return None
    return Distribution(executable, home)


def find_jars(env: Mapping[str, str]) -> Jars | None:
    """Return the installed jars, installing them first if that can be done; None if the machine has no means to."""
    if installed(env) is None and find_maven(env) is None:
        return None
    java = find_java(env)
    return None if java is None else Jars(install(env, java), java)


def _homes(executable: Path) -> tuple[Path, Path]:
    above = executable.parent.parent
    # Homebrew puts a start script in front and the distribution below it.
    return above, above / "libexec"


def _version_of(executable: Path, env: Mapping[str, str]) -> str | None:
    try:
        answer = subprocess.run([executable, "--version"], env=env, capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"Version: (\S+?),", answer.stdout)
    return found[1] if found else None
