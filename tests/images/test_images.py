"""What an image holds, how it starts, what it may write, and how it ends."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.images.conftest import TAG
from tests.images.containers import STOP_S, TMP, USER, Image, Running, running

if TYPE_CHECKING:
    from docker import DockerClient

pytestmark = pytest.mark.images

FOREIGN = {"torch", "transformers", "pip", "uv", "setuptools", "wheel", "hatchling", "onnx", "pytest", "mypy", "ruff"}
BUILD_TOOLS = ("gcc", "cc", "g++", "make", "ld", "uv", "git", "curl")
SHELLS = ("sh", "bash", "dash", "ash", "zsh", "busybox")

WRITABLE = """
import os
for place, folders, files in os.walk('/'):
    if place == '/':
        folders[:] = [name for name in folders if name not in ('proc', 'sys', 'dev')]
    for name in [place, *(os.path.join(place, name) for name in files)]:
        if not os.path.islink(name) and os.access(name, os.W_OK):
            print(name)
"""


def config_of(engine: DockerClient, image: Image) -> dict[str, Any]:
    """The image's configuration."""
    config: dict[str, Any] = engine.images.get(f"{image.name}:{TAG}").attrs["Config"]
    return config


def test_labels_say_what_it_is(engine: DockerClient, image: Image) -> None:
    """The labels of the OCI, the version being the tag."""
    labels = config_of(engine, image)["Labels"]
    prefix = "org.opencontainers.image."
    assert labels[f"{prefix}title"] == image.name
    assert labels[f"{prefix}version"] == TAG
    assert labels[f"{prefix}licenses"] == "Apache-2.0"
    assert all(labels[f"{prefix}{name}"] for name in ("revision", "vendor", "base.name"))


def test_the_user_is_nobody_in_particular(engine: DockerClient, image: Image, ready: Running) -> None:
    """By number, so that a cluster can tell that it is not root; and the process is that user."""
    assert config_of(engine, image)["User"] == USER
    assert ready.python("import os; print(os.getuid(), os.getgid())").split() == USER.split(":")


def test_size(engine: DockerClient, image: Image, capsys: pytest.CaptureFixture[str]) -> None:
    """What the image adds to its base stays bounded; the base is the user's choice."""
    built = engine.images.get(f"{image.name}:{TAG}")
    added = sum(layer["Size"] for layer in built.history() if layer["CreatedBy"].startswith("COPY")) / 1e6
    with capsys.disabled():
        print(f"\n  {image.name}:{TAG}: {built.attrs['Size'] / 1e6:.0f} MB, of which {added:.0f} MB are not of the base image ", end="")
    assert 0 < added < image.added_mb


def test_holds_nothing_to_build_with(ready: Running) -> None:
    """No framework for training, no installer, no compiler, no test tool."""
    said = ready.python("import importlib.metadata as m, json; print(json.dumps([d.metadata['Name'].lower() for d in m.distributions()]))")
    installed = set(json.loads(said))
    assert {"fastapi", "knowledge-servicekit"} <= installed
    # What the base image brings for its own Python is not on this environment's path.
    assert not installed & FOREIGN
    there = ready.python(
        f"import shutil; print([name for name in {BUILD_TOOLS} if shutil.which(name, path='/opt/venv/bin:/usr/bin:/bin')])"
    )
    assert there.strip() == "[]"


def test_adds_no_shell(engine: DockerClient, image: Image, ready: Running) -> None:
    """A shell is there only if the base image, which the label names, brings it."""
    program = f"import shutil; print(*[name for name in {SHELLS} if shutil.which(name, path='/opt/venv/bin:/usr/local/bin:/usr/bin:/bin')])"
    found = set(ready.python(program).split())
    base = config_of(engine, image)["Labels"]["org.opencontainers.image.base.name"]
    if not found:
        return
    if not engine.images.list(base):
        pytest.fail(f"the image has {', '.join(sorted(found))}; whether that is of its base is told by {base}: `docker pull {base}`")
    said = engine.containers.run(base, ["python3", "-c", program], remove=True, entrypoint="")
    assert found <= set(said.decode().split())


def test_only_tmp_can_be_written(ready: Running) -> None:
    """With a read-only root, as the chart and compose.yaml run it."""
    assert {path for path in ready.python(WRITABLE).splitlines() if not path.startswith(TMP)} == set()
    assert ready.python(f"open('{TMP}/probe', 'w').write('x'); print('written')").strip() == "written"


def test_programs_are_not_the_users_own(engine: DockerClient, image: Image, ready: Running) -> None:
    """With a writable root too, the process cannot change its programs."""
    said = engine.containers.run(f"{image.name}:{TAG}", ["python3", "-c", WRITABLE], remove=True)
    writable = said.decode().splitlines()
    assert [path for path in writable if path.startswith(("/opt", "/usr", "/etc"))] == []


def test_health_and_ready(ready: Running) -> None:
    """Both probes of the chart."""
    assert (ready.status_of("/health"), ready.status_of("/ready")) == (200, 200)


def test_serves_the_model_that_is_baked_in(ready: Running) -> None:
    """From a folder that cannot be written, and without a network's help."""
    if not ready.image.model:
        return
    if ready.image.name == "knowledge-embedding":
        answer = ready.post("/embed", {"texts": ["Monstera"], "kind": "query"})
    else:
        answer = ready.post("/rerank", {"query": "water", "documents": ["Water it.", "Sun."]})
        assert answer["status"] == "complete"
    assert answer["model"] == ready.image.model


def test_ends_in_time_once_ready(image: Image) -> None:
    """The signal that a cluster sends; status 0."""
    with running(image, TAG) as started:
        started.wait_for("/ready")
        ends_in_time(started)


def test_ends_in_time_while_it_starts(image: Image) -> None:
    """A rollout may end a pod whose model still loads."""
    with running(image, TAG) as started:
        started.wait_for("/health")
        ends_in_time(started)


def ends_in_time(started: Running) -> None:
    """Stop it, and look at how it ended."""
    began = time.monotonic()
    started.wrapped.stop(timeout=STOP_S)
    assert time.monotonic() - began < STOP_S
    started.wrapped.reload()
    assert started.wrapped.attrs["State"]["ExitCode"] == 0, started.last_words()
