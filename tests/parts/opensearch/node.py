"""Run a node as a process of this machine: its settings, its state folder, its start and its end."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Final, TypeAlias
from urllib.error import HTTPError
from uuid import uuid4

from tests.parts.opensearch import supervise
from tests.parts.opensearch.launch import Jvm, Launch

__all__ = [
    "WAIT_S",
    "Node",
    "NodeError",
    "Setting",
    "common_settings",
    "free_ports",
    "running",
    "supervised",
    "tail",
    "wait_until_yellow",
    "write_settings",
]

Setting: TypeAlias = str | int | bool | list[str] | None

WAIT_S: Final = 180.0
_LOOPBACK: Final = "127.0.0.1"
_TAIL_LINES: Final = 40
_LOG_SETTINGS: Final = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d{ISO8601}][%-5p][%-25c{1.}] %m%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""


class NodeError(RuntimeError):
    """A node was there to be started, but did not come up; the message ends with the last lines of its log."""


@dataclass(frozen=True)
class Node:
    """A node that answers."""

    url: str
    origin: str
    # Those it was started with; empty if somebody else started it.
    settings: Mapping[str, Setting] = field(default_factory=dict)


def free_ports(count: int) -> list[int]:
    """Return distinct ports that nobody listens on; all are held until the last is known."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind((_LOOPBACK, 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


def common_settings(name: str, state: Path, http_port: int, transport_port: int) -> dict[str, Setting]:
    """Return the settings of a single node named `name` that keeps to loopback and to its state folder."""
    return {
        "cluster.name": name,
        "node.name": "node-1",
        "network.host": _LOOPBACK,
        "http.port": http_port,
        "transport.port": transport_port,
        "discovery.type": "single-node",
        "path.data": str(state / "data"),
        "path.logs": str(state / "logs"),
        "path.repo": [str(state / "snapshots")],
        "action.auto_create_index": False,
        # A full disk of the developer's machine would make indices read-only.
        "cluster.routing.allocation.disk.threshold_enabled": False,
    }


def write_settings(state: Path, settings: Mapping[str, Setting]) -> None:
    """Make the folders of a node and write its settings; those that are None stay out."""
    for folder in ("config", "data", "logs", "tmp", "snapshots"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    # JSON values are YAML values, and quoted where YAML would guess.
    lines = [f"{name}: {json.dumps(value)}\n" for name, value in settings.items() if value is not None]
    (state / "config/opensearch.yml").write_text("".join(lines))
    (state / "config/log4j2.properties").write_text(_LOG_SETTINGS)


@contextmanager
def running(
    launch: Launch,
    env: Mapping[str, str],
    *,
    settings: Mapping[str, Setting] | None = None,
    jvm: Jvm | None = None,
    wait_s: float = WAIT_S,
) -> Iterator[Node]:
    """Run a node in a fresh folder while the context lasts; it ends, and the folder goes, even if we are killed.

    `settings` come on top of the common ones; None takes a common one out.
    """
    http_port, transport_port = free_ports(2)
    with tempfile.TemporaryDirectory(prefix="kgtest-opensearch-", ignore_cleanup_errors=True) as folder:
        # The name tells our node from another server that took the port meanwhile.
        name = f"kgtest-{uuid4().hex[:12]}"
        common = common_settings(name, Path(folder), http_port, transport_port)
        chosen = {**common, **launch.settings, **(settings or {})}
        node = Node(f"http://{_LOOPBACK}:{http_port}", launch.origin, chosen)
        with supervised(launch, Path(folder), jvm or Jvm(), chosen, env) as (alive, log):
            wait_until_yellow(node.url, str(chosen["cluster.name"]), alive, partial(tail, log), wait_s)
            yield node


@contextmanager
def supervised(
    launch: Launch, state: Path, jvm: Jvm, settings: Mapping[str, Setting], env: Mapping[str, str]
) -> Iterator[tuple[Callable[[], bool], Path]]:
    """Run the process; yield whether it still runs, and its log."""
    write_settings(state, settings)
    command = launch.prepare(state, jvm)
    log = state / "logs/node.log"
    supervisor = subprocess.Popen(
        [sys.executable, "-I", supervise.__file__, log, state, *command.argv],
        env={**env, **command.environment},
        stdin=subprocess.PIPE,
        # Ctrl-C in a terminal goes to the whole group: the tests come first, the server ends after them.
        start_new_session=True,
    )
    try:
        yield (lambda: supervisor.poll() is None), log
    finally:
        assert supervisor.stdin is not None
        supervisor.stdin.close()
        try:
            supervisor.wait(2 * supervise.GRACE_S)
        except subprocess.TimeoutExpired:
            supervisor.kill()
            supervisor.wait()


def wait_until_yellow(url: str, cluster: str | None, alive: Callable[[], bool], last_words: Callable[[], str], wait_s: float) -> None:
    """Return once the node can serve; raise NodeError if it ends before, or takes longer than `wait_s`.

    If `cluster` is given, only a node of the cluster with this name counts.
    """
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        if _is_yellow(url, cluster):
            return
        if not alive():
            raise NodeError(f"the OpenSearch node ended while it started; its last words:\n{last_words()}")
        time.sleep(0.25)
    raise NodeError(f"no OpenSearch node served {url} within {wait_s:.0f} s; its last words:\n{last_words()}")


def _is_yellow(url: str, cluster: str | None) -> bool:
    # A proxy that the environment names has no way to our loopback.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"{url}/_cluster/health?wait_for_status=yellow&timeout=2s", timeout=5) as answer:
            health = json.load(answer)
    except HTTPError as refusal:
        refusal.close()
        return False
    except (OSError, HTTPException, ValueError):
        return False
    return cluster is None or health.get("cluster_name") == cluster


def tail(log: Path | str) -> str:
    """Return the last lines of a log: of a text, or of a file that may not be there yet."""
    if isinstance(log, Path):
        log = log.read_text(errors="replace") if log.exists() else ""
    # The stack of one Java exception would push its message out.
    lines = [line for line in log.splitlines() if not line.startswith("\tat ")]
    return "\n".join(lines[-_TAIL_LINES:])
