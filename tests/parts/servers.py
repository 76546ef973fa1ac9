"""A foreign server as a process on loopback, for exactly as long as somebody wants it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.parts.opensearch import supervise

POLL_S = 0.05
START_S = 60.0
TAIL_LINES = 15


class ServerFailed(RuntimeError):
    """A server ended, or did not say what was waited for; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]

    def said(self, pattern: str, limit_s: float = START_S) -> str:
        """What the first group of `pattern` matches in the log, once it is there.

        Raises:
            ServerFailed: it ended before, or said no such thing in time.
        """
        ends = time.monotonic() + limit_s
        while time.monotonic() < ends:
            text = self.log.read_text(errors="replace") if self.log.exists() else ""
            if found := re.search(pattern, text):
                return found[1]
            if self.process.poll() is not None:
                break
            time.sleep(POLL_S)
        tail = "\n".join(text.splitlines()[-TAIL_LINES:])
        raise ServerFailed(f"{self.name} did not start; the end of {self.log}:\n{tail}")


@contextmanager
def serving(name: str, command: Sequence[str], folder: Path, env: Mapping[str, str]) -> Iterator[Server]:
    """Run a server until the block, or this process, ends. Its log lies in `folder`; where it works is thrown away."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{name}.log"
    with tempfile.TemporaryDirectory(prefix=f"kgtest-{name}-", ignore_cleanup_errors=True) as work:
        supervisor = [sys.executable, "-I", supervise.__file__, str(log), work, *command]
        with subprocess.Popen(supervisor, stdin=subprocess.PIPE, env=dict(env), start_new_session=True) as process:
            try:
                yield Server(name, log, process)
            finally:
                assert process.stdin is not None
                process.stdin.close()
                process.wait(supervise.GRACE_S + 5)
