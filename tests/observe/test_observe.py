"""`make observe`: what it prints leads somewhere, and Ctrl-C leaves nothing behind."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.observe.stack import CORPUS, until

pytestmark = [pytest.mark.traces, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
UP_S, STOP_S = 180.0, 60.0


@dataclass(slots=True)
class Session:
    """The command as a person has it before them."""

    process: subprocess.Popen[bytes]
    screen: int
    text: str = ""

    def read(self) -> str:
        """What it has printed by now."""
        try:
            while new := os.read(self.screen, 65536):
                self.text += new.decode(errors="replace")
        except (BlockingIOError, OSError):
            pass
        return self.text

    def address(self, name: str) -> str:
        """The first address in the line that begins with `name`."""
        found = re.search(rf"^{re.escape(name)} +(http\S+)", self.text, flags=re.MULTILINE)
        assert found, self.text
        return found[1]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """Up, with a terminal, so that it stays."""
    screen, terminal = pty.openpty()
    os.set_blocking(screen, False)
    command = [sys.executable, "-m", "examples.observe", "--corpus", str(CORPUS)]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    opened = Session(process, screen)
    try:
        up = until(lambda: "running until Ctrl-C" in opened.read() or process.poll() is not None, UP_S)
        assert up is not None, opened.text
        assert process.poll() is None, opened.text
        yield opened
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(STOP_S)
        os.close(screen)


def get(url: str) -> httpx.Response:
    """A GET on loopback."""
    return httpx.get(url, timeout=20, trust_env=False)


def listens(url: str) -> bool:
    """Whether anybody answers there."""
    parts = urlsplit(url)
    with socket.socket() as probe:
        return probe.connect_ex((str(parts.hostname), int(parts.port or 0))) == 0


def test_what_it_prints_leads_to_the_forced_fallback(session: Session) -> None:
    """Prometheus has counted it, Jaeger has its trace, and after Ctrl-C nobody listens any more."""
    counted, traces = session.address("fallbacks by reason"), session.address("traces of fallbacks")
    assert until(lambda: "transport" in get(counted).text, 60) is not None
    assert until(lambda: get(traces).json()["data"], 60) is not None
    assert get(session.address("alerts")).json()["status"] == "success"
    assert get(session.address("Prometheus")).status_code in {200, 302}
    addresses = set(re.findall(r"http://127\.0\.0\.1:\d+", session.text))
    assert len(addresses) == 7
    session.process.send_signal(signal.SIGINT)
    assert session.process.wait(STOP_S) == 130
    time.sleep(0.2)
    assert [url for url in addresses if listens(url)] == []
