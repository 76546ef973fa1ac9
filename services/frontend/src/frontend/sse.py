"""Server-sent events, written."""

import json
from typing import Any


def event(name: str, data: bytes | dict[str, Any]) -> bytes:
    """One event; JSON never holds a line break, so one data line is enough."""
    text = data if isinstance(data, bytes) else json.dumps(data, ensure_ascii=False).encode()
    return b"event: " + name.encode() + b"\ndata: " + text + b"\n\n"
