"""A reranker that can be told to answer, to say that it loads, to say nothing, or to be gone."""

import asyncio
import json
from typing import Literal, Self

Mode = Literal["answers", "loading", "silent"]

LOADING = b'{"status": "loading", "retry_after_ms": 1000}'


class FaultyReranker:
    """Speaks just enough HTTP, one request a connection, so that a closed door is found closed at once."""

    def __init__(self) -> None:
        self.mode: Mode = "answers"
        self._server: asyncio.Server | None = None
        self._port = 0
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """Where it is, or would be."""
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        await self.come()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.go()
        for writer in list(self._open):
            writer.close()

    async def come(self) -> None:
        """Listen, always on the same port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = int(self._server.sockets[0].getsockname()[1])

    def go(self) -> None:
        """Refuse connections."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = next((int(line.split(":")[1]) for line in head.splitlines() if line.startswith("content-length:")), 0)
            body = await reader.readexactly(length)
            if self.mode == "silent" and length:
                await reader.read()  # until the caller has had enough
                return
            writer.write(self._answer(body))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the caller is gone
        finally:
            self._open.discard(writer)
            writer.close()

    def _answer(self, body: bytes) -> bytes:
        loading = self.mode == "loading" and body
        status = "503 Service Unavailable" if loading else "200 OK"
        content = LOADING if loading else _scores(body)
        return (
            f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode()
            + content
        )


def _scores(body: bytes) -> bytes:
    """Equal scores for all documents; for a GET an empty `/info`."""
    if not body:
        return b"{}"
    results = [{"index": index, "score": 0.5} for index in range(len(json.loads(body)["documents"]))]
    return json.dumps({"results": results, "model": "faulty", "score_kind": "opaque"}).encode()
