"""Starts, watches and stops the services as processes on loopback. The end-to-end tests use it too."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

COMMANDS = {
    "knowledge-embedding": ("knowledge-embedding",),
    "knowledge-reranker": ("knowledge-reranker",),
    "knowledge-gateway": ("knowledge", "serve"),
    "knowledge-frontend": ("knowledge-frontend",),
}
PORTS = {"knowledge-gateway": 8000, "knowledge-embedding": 8080, "knowledge-reranker": 8081, "knowledge-frontend": 8090}
STOP_S = 15.0
POLL_S = 0.1
LOG_TAIL_LINES = 15
# Settings of the person's own shell must not reach the demo or a test by accident.
FOREIGN_PREFIXES = (
    *("AUTH_", "RERANK", "EMBEDD", "OPENSEARCH_", "SEARCH_", "RETRIEVAL_", "RRF_", "KNOWLEDGE_", "OTEL_", "TEXT_FIELDS"),
    *("FILTERABLE_", "CONFIG_FILE", "MODEL_CACHE_DIR", "HOST", "PORT", "LOG_LEVEL", "GATEWAY_"),
    *("FRONTEND_", "OIDC_", "ANSWER_", "PROMETHEUS_URL", "TRACES_"),
)


class ServiceFailed(RuntimeError):
    """A service ended or did not get ready; the message holds the end of its log."""


@dataclass(slots=True)
class Service:
    """One running service."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]
    url: str = ""
    env: dict[str, str] = field(default_factory=dict)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the process and wait until it has ended."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(STOP_S)


def clean_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment of a service: this process's without foreign settings, plus `settings`."""
    base = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN_PREFIXES)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{base.get('PATH', '')}"
    return {**base, "PATH": path, **settings}


def choose_port(preferred: int) -> int:
    """`preferred` if it is free, else 0: the service then takes any and says which."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", preferred))
        except OSError:
            return 0
    return preferred


def start(
    name: str, settings: Mapping[str, str], folder: Path, *, port: int = 0, detached: bool = False, command: Sequence[str] = ()
) -> Service:
    """Start a service, with another `command` than its own if one is given; it listens when this returns, but need not be ready.

    Raises:
        ServiceFailed: it ended before it listened.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{name}.log"
    env = clean_environment({**settings, "PORT": str(port), "HOST": "127.0.0.1"})
    with log.open("wb") as sink:
        # The working folder holds no .env, so nothing but `settings` decides.
        process = subprocess.Popen(
            command or COMMANDS[name], env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=detached
        )
    service = Service(name, log, process, env=dict(settings))
    try:
        service.url = _listening_url(service)
    except BaseException:  # Ctrl-C too: nobody else knows of this process yet
        service.stop()
        raise
    return service


def _listening_url(service: Service, limit_s: float = 60.0) -> str:
    ends = time.monotonic() + limit_s
    while time.monotonic() < ends:
        for line in service.log.read_text(errors="replace").splitlines():
            if '"listening"' in line:
                return str(json.loads(line)["url"])
        if service.process.poll() is not None:
            break
        time.sleep(POLL_S)
    raise ServiceFailed(_said(service, "did not start to listen"))


def wait_ready(service: Service, limit_s: float = 180.0) -> None:
    """Wait until `/ready` answers 200.

    Raises:
        ServiceFailed: it ended, or was not ready in time.
    """
    ends = time.monotonic() + limit_s
    while time.monotonic() < ends:
        if service.process.poll() is not None:
            raise ServiceFailed(_said(service, "ended"))
        if status_of(f"{service.url}/ready") == 200:
            return
        time.sleep(POLL_S)
    raise ServiceFailed(_said(service, f"was not ready within {limit_s:g} s"))


def status_of(url: str) -> int:
    """The HTTP status of a GET on loopback; 0 without an answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def _said(service: Service, what: str) -> str:
    tail = "\n".join(service.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
    return f"{service.name} {what}; the end of {service.log}:\n{tail}"


@contextmanager
def running(name: str, settings: Mapping[str, str], folder: Path, *, port: int = 0) -> Iterator[Service]:
    """A ready service that ends with the block."""
    service = start(name, settings, folder, port=port)
    try:
        wait_ready(service)
        yield service
    finally:
        service.stop()
