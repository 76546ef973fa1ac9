"""A node that outlives the command that started it, and keeps its data: for work by hand."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from tests.parts import say
from tests.parts.opensearch.launch import Jvm, Launch
from tests.parts.opensearch.node import (
    WAIT_S,
    NodeError,
    common_settings,
    free_ports,
    tail,
    wait_until_yellow,
    write_settings,
)

__all__ = ["start", "stop"]

_CLUSTER: Final = "knowledge-gateway"
_GRACE_S: Final = 30


def start(launch: Launch, state: Path, port: int, env: Mapping[str, str]) -> str:
    """Start the node whose data are in `state`, unless it runs already, and return its URL."""
    if running_pid(state) is not None:
        say("already running")
        return _url_file(state).read_text().strip()
    _refuse_taken(port)
    settings = {**common_settings(_CLUSTER, state, port, *free_ports(1)), **launch.settings}
    write_settings(state, settings)
    command = launch.prepare(state, Jvm(quick=False))
    log, url = state / "logs/node.log", f"http://127.0.0.1:{port}"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command.argv,
            cwd=state,
            env={**env, **command.environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _pid_file(state).write_text(f"{process.pid}\n")
    _url_file(state).write_text(f"{url}\n")
    try:
        wait_until_yellow(url, _CLUSTER, lambda: process.poll() is None, partial(tail, log), WAIT_S)
    except BaseException:
        process.terminate()
        process.wait(_GRACE_S)
        _pid_file(state).unlink()
        raise
    return url


def stop(state: Path) -> bool:
    """Stop the node whose data are in `state`; return False if it did not run."""
    pid = running_pid(state)
    if pid is not None:
        _end(pid, state)
    _pid_file(state).unlink(missing_ok=True)
    return pid is not None


def running_pid(state: Path) -> int | None:
    """Return the process of this very node; the number in the file may meanwhile be another's."""
    try:
        pid = int(_pid_file(state).read_text())
    except (FileNotFoundError, ValueError):
        return None
    return pid if f"-Dopensearch.path.conf={state}/config" in _command_of(pid) else None


def _end(pid: int, state: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        os.kill(pid, number)
        until = time.monotonic() + _GRACE_S
        while time.monotonic() < until:
            if running_pid(state) is None:
                return
            time.sleep(0.1)
    raise NodeError(f"process {pid} does not end")


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except FileNotFoundError:
        pass
    try:
        # Systems without /proc have ps.
        shown = subprocess.run(["ps", "-wwo", "args=", "-p", str(pid)], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return shown.stdout


def _refuse_taken(port: int) -> None:
    """Raise NodeError if another server has the port: its answers would pass for those of our node."""
    with socket.socket() as probe:
        # As the node itself does: connections of a server that ended are no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as refusal:
            raise NodeError(f"port {port} cannot be had ({refusal.strerror}): choose another with --port.") from None


def _pid_file(state: Path) -> Path:
    return state / "opensearch.pid"


def _url_file(state: Path) -> Path:
    return state / "opensearch.url"
