"""Every backend test runs against each backend: a file, and a real OpenSearch node. A machine without a node fails the run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from knowledge.ports import Backend
from tests.contract.places import DIMENSION, FINGERPRINT, Asked, EmbeddedPlace, OpenSearchPlace, Place

BACKENDS = ["embedded", pytest.param("opensearch", marks=pytest.mark.opensearch)]


def make_place(name: str, folder: Path, request: pytest.FixtureRequest) -> Place:
    """An empty place for the backend of this name."""
    return EmbeddedPlace(folder) if name == "embedded" else OpenSearchPlace(request.getfixturevalue("opensearch_url"))


@pytest.fixture(params=BACKENDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Somewhere without an index."""
    made = make_place(request.param, tmp_path, request)
    yield made
    made.remove()


@pytest.fixture
async def backend(place: Place) -> AsyncIterator[Backend]:
    """An opened backend with an empty index."""
    opened = place.connect()
    await opened.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    yield opened
    await opened.aclose()


@pytest.fixture
def asked(backend: Backend) -> Asked:
    """The same backend, to be asked in one line."""
    return Asked(backend)
