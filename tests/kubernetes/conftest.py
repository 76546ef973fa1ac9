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

OPENSEARCH_IMAGE = "knowledge-test-opensearch:3.5.0"


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
        with step("OpenSearch's image"):
            _load_opensearch(made)
        with step("skaffold run, OpenSearch"):
            made.run("skaffold", "run", "--module", "opensearch")
        with step("skaffold run, gateway and model services"):
            made.run("skaffold", "run", "--module", "knowledge")
        with step("the Job ingests"):
            until(lambda: any(job["status"].get("succeeded") for job in made.objects("jobs")), "the ingestion Job to end well")
        yield made
    finally:
        if os.environ.get("E2E_KEEP") != "1":
            made.run("kubectl", "delete", "namespace", made.namespace, "--wait=true", "--ignore-not-found", status=None)


def _load_opensearch(cluster: Cluster) -> None:
    """The chart's default image cannot be pulled everywhere: build one from what the tests' own node is made of."""
    subprocess.run([sys.executable, "-m", "tests.e2e.images", "opensearch"], check=True, capture_output=True)
    with TemporaryDirectory(prefix="kgtest-") as folder:
        archive = f"{folder}/opensearch.tar"
        cluster.run("docker", "save", "--output", archive, OPENSEARCH_IMAGE)
        cluster.run(*shlex.split(cluster.environment["E2E_LOAD_IMAGE"]), archive)
