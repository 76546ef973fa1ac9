"""A node of OpenSearch as an image, made of the jars that the tests fetch and this machine's Java.

It takes the variables that the published image takes, runs as its user, and keeps its data where that does; it has the k-NN
plugin and no other.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.parts import MissingPart, say
from tests.parts.opensearch import install as jars
from tests.parts.opensearch.java import MINIMUM, find_java
from tests.parts.opensearch.launch import Jars, Jvm
from tests.parts.opensearch.node import write_settings
from tests.parts.toolchain.docker import docker_config

__all__ = ["IMAGE", "build"]

IMAGE = f"knowledge-test-opensearch:{jars.VERSION}"

_HERE = Path(__file__).parent
_HOME = Path("/usr/share/opensearch")
_JAVA = Path("/opt/java")
_LABEL = "knowledge.made-from"
# Of a development kit only what runs is taken along.
_NOT_OF_JAVA = ("src.zip", "jmods", "include", "man", "demo", "legal", "ct.sym")


@dataclass(frozen=True)
class _FlagsAtStart(Jvm):
    """Heap and compiler come from OPENSEARCH_JAVA_OPTS when the container starts."""

    def flags(self, state: Path) -> list[str]:
        """Return what no variable decides."""
        return [f"-Djava.io.tmpdir={state / 'tmp'}"]


def build(env: Mapping[str, str], arguments: Sequence[str] = ()) -> str:
    """Build the image unless it is there already, made from the same parts; return its name.

    `arguments` go to `docker build`. Raises MissingPart if there is no engine, no Java or no Maven.
    """
    config = docker_config(env)
    engine = {**env, "DOCKER_BUILDKIT": "1", **({"DOCKER_CONFIG": config} if config else {})}
    java = find_java(env)
    if java is None:
        raise MissingPart(f"The image of OpenSearch takes this machine's Java: install Java {MINIMUM} or newer.")
    made_from = _made_from(java)
    if _label(engine) == made_from:
        return IMAGE
    say(f"building {IMAGE} ...")
    with tempfile.TemporaryDirectory(prefix="kgtest-image-") as place:
        _lay_out(Path(place), jars.install(env, java), java)
        command = ["docker", "build", "--quiet", "--tag", IMAGE, "--label", f"{_LABEL}={made_from}", *arguments, place]
        subprocess.run(command, env=engine, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    return IMAGE


def _lay_out(context: Path, installed: Path, java: Path) -> None:
    """Fill the folder that the image is built from."""
    node = context / "opensearch"
    shutil.copytree(installed, node)
    shutil.copytree(java.parent.parent, context / "java", ignore=shutil.ignore_patterns(*_NOT_OF_JAVA))
    write_settings(node, {})
    launch = Jars(_HOME, _JAVA / "bin/java").prepare(_HOME, _FlagsAtStart())
    (node / "command.json").write_text(json.dumps(launch.argv, indent=1))
    for own in ("Dockerfile", "start.py"):
        shutil.copy(_HERE / own, context / own)


def _made_from(java: Path) -> str:
    parts = (Path(__file__), _HERE / "Dockerfile", _HERE / "start.py")
    content = b"".join(part.read_bytes() for part in parts)
    return hashlib.sha256(content + jars.CURRENT.fingerprint.encode() + os.fsencode(java)).hexdigest()


def _label(engine: Mapping[str, str]) -> str:
    command = ["docker", "image", "inspect", "--format", f'{{{{index .Config.Labels "{_LABEL}"}}}}', IMAGE]
    return subprocess.run(command, env=dict(engine), capture_output=True, text=True, timeout=60, check=False).stdout.strip()
