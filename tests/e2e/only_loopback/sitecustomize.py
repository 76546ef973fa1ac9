"""Put on PYTHONPATH of a service under test: every socket that does not stay on the machine is refused and noted.

Python's own event loop is used, because the audit hook does not see connections that another loop's C code makes.
"""

import ipaddress
import os
import sys

NOTE = os.environ.get("ONLY_LOOPBACK_NOTE", "")
sys.modules["uvloop"] = None  # type: ignore[assignment]


def _stays_here(host: object) -> bool:
    if host in ("localhost", "", None, b"localhost"):
        return True
    try:
        return ipaddress.ip_address(host.decode() if isinstance(host, bytes) else str(host)).is_loopback
    except ValueError:
        return False


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if event == "socket.getaddrinfo":
        host = arguments[0]
    elif event in ("socket.connect", "socket.sendto") and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    else:
        return
    if not _stays_here(host):
        with open(NOTE, "a", encoding="utf-8") as note:  # noqa: PTH123 - nothing may be imported in here
            note.write(f"{event} {host!r}\n")
        raise OSError(f"only the loopback is allowed here, not {host!r}")


if NOTE:
    sys.addaudithook(_hook)
