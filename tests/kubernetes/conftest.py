"""The release under test: installed once as a newcomer would, with the time that each step took."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest

from tests.kubernetes.cluster import Cluster, connect, until


@contextmanager
def step(what: str) -> Iterator[None]:
    """Say what is being done, and how long it took."""
    began = time.monotonic()
    print(f"\n  {what} ...", end="", flush=True)
    yield
    print(f" {time.monotonic() - began:.0f} s", end="", flush=True)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A namespace of our own with OpenSearch and the release in it; both are gone afterwards."""
    made = connect(f"kgtest-{uuid4().hex[:8]}", os.environ)
    try:
        with step("the images of OpenSearch and Jaeger"):
            for name in ("opensearch", "jaeger"):
                _load(made, name)
        with step("skaffold run, OpenSearch and Jaeger"):
            made.run("skaffold", "run", "--module", "opensearch")
            made.run("skaffold", "run", "--module", "observability")
        with step("skaffold run, gateway, model services and pages"):
            made.run("skaffold", "run", "--module", "knowledge", "--profile", "traces")
        with step("the Job ingests"):
            until(lambda: any(job["status"].get("succeeded") for job in made.objects("jobs")), "the ingestion Job to end well")
        yield made
    finally:
        if os.environ.get("E2E_KEEP") != "1":
            made.run("kubectl", "delete", "namespace", made.namespace, "--wait=true", "--ignore-not-found", status=None)


def _load(cluster: Cluster, name: str) -> None:
    """The charts' default images cannot be pulled everywhere: build one from what the tests' own parts are made of."""
    built = subprocess.run([sys.executable, "-m", "tests.e2e.images", name], check=True, capture_output=True, text=True)
    with TemporaryDirectory(prefix="kgtest-") as folder:
        archive = f"{folder}/{name}.tar"
        cluster.run("docker", "save", "--output", archive, built.stdout.strip())
        cluster.run(*shlex.split(cluster.environment["E2E_LOAD_IMAGE"]), archive)
