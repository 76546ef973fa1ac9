"""An engine that answers, and the images that `make images` built."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.images.containers import IMAGES, LABEL, RUN, Image, Running, running
from tests.parts import MissingPart
from tests.parts.toolchain.docker import docker_config

if TYPE_CHECKING:
    from docker import DockerClient

TAG = os.environ.get("IMAGE_TAG", "0.1.0")


@pytest.fixture(scope="session")
def engine() -> Iterator[DockerClient]:
    """The engine; what this run left in it is removed at the end."""
    with pytest.MonkeyPatch.context() as patch:
        # Nothing is pulled: the helper that removes leftovers is an image of its own, so that is done here.
        patch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
        patch.setenv("TESTCONTAINERS_CONNECTION_MODE", "docker_host")
        patch.setenv("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1")
        # They are read when it is imported.
        from testcontainers.core.docker_client import DockerClient as Testcontainers

        try:
            docker_config(os.environ)
        except MissingPart as problem:
            pytest.fail(str(problem), pytrace=False)
        client = Testcontainers().client
        yield client
        for left in client.containers.list(all=True, filters={"label": f"{LABEL}={RUN}"}):
            left.remove(force=True)
        client.close()


@pytest.fixture(scope="session", params=IMAGES, ids=[image.name for image in IMAGES])
def image(request: pytest.FixtureRequest, engine: DockerClient) -> Image:
    """One image after the other."""
    chosen: Image = request.param
    if not engine.images.list(f"{chosen.name}:{TAG}"):
        pytest.fail(f"There is no image {chosen.name}:{TAG}: run `make images` (IMAGE_TAG={TAG}).", pytrace=False)
    return chosen


@pytest.fixture(scope="session")
def ready(image: Image) -> Iterator[Running]:
    """A container that is ready."""
    with running(image, TAG) as started:
        started.wait_for("/ready")
        yield started
