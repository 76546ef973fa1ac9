"""`python -m tests.parts.toolchain.docker`: a Docker that can build with BuildKit; prints the DOCKER_CONFIG to use, or nothing.

A client of version 23 or newer needs the buildx plugin, which Docker Desktop brings and a distribution's package may not.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping

from tests.parts import MissingPart, say
from tests.parts.toolchain.build import find, folder


def docker_config(env: Mapping[str, str]) -> str:
    """The folder for DOCKER_CONFIG; empty where the user's own will do.

    Raises MissingPart if there is no engine that answers.
    """
    if shutil.which("docker", path=env.get("PATH", "")) is None or not _works("docker", "version"):
        raise MissingPart("No Docker engine answers: start one (Docker Desktop, `systemctl start docker`), or set DOCKER_HOST.")
    if _works("docker", "buildx", "version"):
        return ""
    config = folder(env) / "docker-config"
    plugins = config / "cli-plugins"
    plugins.mkdir(parents=True, exist_ok=True)
    link = plugins / "docker-buildx"
    link.unlink(missing_ok=True)
    link.symlink_to(find("docker-buildx", env))
    return str(config)


def _works(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


if __name__ == "__main__":
    try:
        print(docker_config(os.environ))
    except MissingPart as problem:
        say(str(problem))
        sys.exit(1)
