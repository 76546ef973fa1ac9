"""Run one server for exactly as long as the process that asked for it lives.

Started as a script of its own: `supervise.py LOG FOLDER COMMAND...`. Its standard input is a pipe that nobody writes
to. The pipe closes when the parent lets go of it and also when the parent is killed; the server is then stopped and
FOLDER removed. A pipe, because the death signal of Linux follows the thread that started the server, not the process.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

GRACE_S: Final = 20
_POLL_S: Final = 0.1


def main(log: str, folder: str, command: list[str]) -> int:
    """Return the server's exit status if it ends by itself, else 0 once it was stopped."""
    with Path(log).open("wb") as out:
        server = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        while not select.select([sys.stdin], [], [], _POLL_S)[0]:
            if server.poll() is not None:
                return server.returncode
    finally:
        _stop(server)
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        # The group, for a start script may have children of its own.
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


if __name__ == "__main__":
    # A polite end of this process alone must not leave the server behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
