"""Requests to an ASGI app by hand: what httpx hides (chunks, disconnects, missing answers) is in the test's own hands."""

import asyncio
from collections.abc import Sequence
from typing import Any

Message = dict[str, Any]


def scope(path: str = "/", headers: Sequence[tuple[str, str]] = (), method: str = "POST", query: str = "", kind: str = "http") -> Message:
    """A connection."""
    return {
        "type": kind,
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "scheme": "http",
        "server": ("test", 80),
        "client": ("127.0.0.1", 5),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
    }


class Caller:
    """Sends the chunks of a body, then waits; `leave` closes the connection. Keeps what it was sent."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = list(chunks) or [b""]
        self.read = 0
        self.left = asyncio.Event()
        self.sent: list[Message] = []

    def leave(self) -> None:
        """Close the connection."""
        self.left.set()

    async def receive(self) -> Message:
        """The next message of the caller."""
        if self.read < len(self.chunks):
            self.read += 1
            return {"type": "http.request", "body": self.chunks[self.read - 1], "more_body": self.read < len(self.chunks)}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Take a message of the app."""
        self.sent.append(message)

    @property
    def status(self) -> int | None:
        """The status of the answer, if one was begun."""
        starts = [message["status"] for message in self.sent if message["type"] == "http.response.start"]
        assert len(starts) <= 1, "two answers to one request"
        return starts[0] if starts else None

    @property
    def body(self) -> bytes:
        """The body of the answer."""
        return b"".join(message.get("body", b"") for message in self.sent)
