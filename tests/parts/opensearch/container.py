"""Run the node as a container, where a container engine answers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from tests.parts import say
from tests.parts.opensearch.install import VERSION
from tests.parts.opensearch.launch import Jvm
from tests.parts.opensearch.node import WAIT_S, Node, Setting, free_ports, tail, wait_until_yellow

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

__all__ = ["IMAGE", "image_at_hand", "running"]

IMAGE: Final = f"opensearchproject/opensearch:{VERSION}"
_ANSWER_S: Final = 10
_PULL_S: Final = 600
_PORT: Final = 9200
_SETTINGS: Final[Mapping[str, Setting]] = {
    "discovery.type": "single-node",
    "path.repo": ["/tmp/snapshots"],  # noqa: S108 - inside the container
    "action.auto_create_index": False,
    "cluster.routing.allocation.disk.threshold_enabled": False,
}


def image_at_hand(env: Mapping[str, str]) -> bool:
    """Return whether an engine answers and has the image, which is pulled if need be.

    A client alone proves nothing: its engine may be stopped, or have no way to the registry.
    """
    docker = shutil.which("docker", path=env.get("PATH", ""))
    if docker is None or find_spec("testcontainers") is None:
        return False
    if not _succeeds([docker, "info", "--format", "{{.ServerVersion}}"], env, _ANSWER_S):
        return False
    if _succeeds([docker, "image", "inspect", IMAGE], env, _ANSWER_S):
        return True
    say(f"pulling {IMAGE} ...")
    if _succeeds([docker, "pull", "--quiet", IMAGE], env, _PULL_S):
        return True
    say(f"Docker cannot pull {IMAGE}: trying the next way")
    return False


@contextmanager
def running(
    *,
    settings: Mapping[str, Setting] | None = None,
    jvm: Jvm | None = None,
    wait_s: float = WAIT_S,
) -> Iterator[Node]:
    """Run a container while the context lasts."""
    # Only this way needs the package.
    from testcontainers.core.container import DockerContainer

    chosen = {**_SETTINGS, **(settings or {})}
    (port,) = free_ports(1)
    container = DockerContainer(IMAGE, env=_environment(chosen, jvm or Jvm()))
    # The engine takes an address too, for which testcontainers has no parameter; without one it listens everywhere.
    published: dict[str, Any] = container.ports
    published[f"{_PORT}/tcp"] = ("127.0.0.1", port)
    with container:
        node = Node(f"http://127.0.0.1:{port}", IMAGE, chosen)
        wait_until_yellow(node.url, None, partial(_runs, container), partial(_last_words, container), wait_s)
        yield node


def _runs(container: DockerContainer) -> bool:
    container.reload()
    return container.status in ("created", "running")


def _last_words(container: DockerContainer) -> str:
    return "\n".join(tail(part.decode(errors="replace")) for part in container.get_logs())


def _environment(settings: Mapping[str, Setting], jvm: Jvm) -> dict[str, str]:
    """Return the variables out of which the image's start script makes settings and flags."""
    flags = [f"-Xms{jvm.heap}", f"-Xmx{jvm.heap}"] + (["-XX:TieredStopAtLevel=1"] if jvm.quick else [])
    return {
        "DISABLE_INSTALL_DEMO_CONFIG": "true",
        "DISABLE_SECURITY_PLUGIN": "true",
        "DISABLE_PERFORMANCE_ANALYZER_AGENT_CLI": "true",
        "OPENSEARCH_JAVA_OPTS": " ".join(flags),
        **{name: _as_text(value) for name, value in settings.items() if value is not None},
    }


def _as_text(value: Setting) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, list) else str(value)


def _succeeds(command: list[str], env: Mapping[str, str], limit_s: float) -> bool:
    try:
        done = subprocess.run(command, env=env, capture_output=True, timeout=limit_s, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    # Some clients exit with 0 although their engine did not answer.
    return done.returncode == 0 and bool(done.stdout.strip())
