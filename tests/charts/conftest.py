"""Helm and what checks its output, on PATH. `HELM=4` takes Helm 4."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.parts.toolchain.build import command_folder, find
from tests.parts.toolchain.catalogue import CHART

ROOT = Path(__file__).parents[2]
Run = Callable[..., str]


@pytest.fixture(scope="session")
def tools() -> dict[str, str]:
    """The environment in which the chart's tools are found."""
    folder = command_folder(CHART, os.environ)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture(scope="session")
def helm(tools: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run Helm on the repository's charts, with nothing of the user's own configuration; what it printed."""
    binary = find("helm4", os.environ) if os.environ.get("HELM") == "4" else "helm"
    home = tmp_path_factory.mktemp("helm")
    own = {name: str(home / name) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}

    def run(*arguments: str, status: int = 0) -> str:
        done = subprocess.run([str(binary), *arguments], capture_output=True, text=True, env={**tools, **own}, cwd=ROOT, check=False)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout if status == 0 else done.stdout + done.stderr

    return run
