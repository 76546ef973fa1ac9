"""Jaeger as an image, made of the binary that the tests build: static, so that nothing else is in it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.parts import say
from tests.parts.toolchain.build import find
from tests.parts.toolchain.docker import docker_config

__all__ = ["IMAGE", "build"]

IMAGE = "knowledge-test-jaeger:2.13.0"
DOCKERFILE = 'FROM scratch\nCOPY --chown=0:0 jaeger /jaeger\nUSER 10001:10001\nENTRYPOINT ["/jaeger"]\n'


def build(env: Mapping[str, str], arguments: Sequence[str] = ()) -> str:
    """Build the image and return its name; `arguments` go to `docker build`.

    Raises MissingPart if there is no engine, or the binary cannot be built.
    """
    config = docker_config(env)
    engine = {**env, "DOCKER_BUILDKIT": "1", **({"DOCKER_CONFIG": config} if config else {})}
    binary = find("jaeger", env)
    say(f"building {IMAGE} ...")
    with tempfile.TemporaryDirectory(prefix="kgtest-image-") as place:
        shutil.copy(binary, Path(place, "jaeger"))
        Path(place, "Dockerfile").write_text(DOCKERFILE)
        command = ["docker", "build", "--quiet", "--tag", IMAGE, *arguments, place]
        subprocess.run(command, env=engine, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    return IMAGE
