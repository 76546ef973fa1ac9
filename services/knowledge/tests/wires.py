"""The other end of a wire: a scripted transport, and real servers on the loopback that refuse, break off, or say what they like."""

import asyncio
import gzip
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx

from knowledge.adapters.http import MAX_ANSWER_BYTES

Answer = Callable[[httpx.Request], httpx.Response | Awaitable[httpx.Response]]
Respond = Callable[[asyncio.StreamWriter, int], Awaitable[None]]


class Wire:
    """A service behind a scripted transport; keeps what it was sent."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[httpx.Request] = []

    def client(self) -> httpx.AsyncClient:
        """A client whose every request ends here."""

        async def handle(request: httpx.Request) -> httpx.Response:
            self.requests.append(request)
            found = self.answer(request)
            return found if isinstance(found, httpx.Response) else await found

        return httpx.AsyncClient(transport=httpx.MockTransport(handle), follow_redirects=False)


def always(status: int = 200, **content: object) -> Answer:
    """The same answer to everything."""
    return lambda _: httpx.Response(status, **content)  # type: ignore[arg-type]


def raising(kind: type[httpx.TransportError]) -> Answer:
    """A transport that fails in this way."""

    def answer(request: httpx.Request) -> httpx.Response:
        raise kind("scripted", request=request)

    return answer


async def never(_: httpx.Request) -> httpx.Response:
    """An answer that does not come."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


def too_large(answer: object) -> httpx.Response:
    """A good answer that is small on the wire and, for all its blanks, over the limit when it is unpacked."""
    packed = gzip.compress(json.dumps(answer).encode() + b" " * MAX_ANSWER_BYTES, compresslevel=1)
    return httpx.Response(200, headers={"content-encoding": "gzip", "content-type": "application/json"}, content=packed)


def unused_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Connections:
    """How many connections a server saw."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.count = 0


@asynccontextmanager
async def listening(respond: Respond) -> AsyncIterator[Connections]:
    """A real server that reads one request a connection and then does what the test says; `respond` gets the connection's number."""
    seen = Connections("")
    handlers: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.count += 1
        task = asyncio.current_task()
        if task is not None:
            handlers.add(task)
        try:
            await reader.readuntil(b"\r\n\r\n")
            await respond(writer, seen.count)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    seen.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield seen
    finally:
        for task in handlers:
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        server.close()


async def reset(writer: asyncio.StreamWriter, _: int) -> None:
    """Break the connection off."""
    writer.transport.abort()


def saying(body: bytes, status: str = "200 OK") -> Respond:
    """Answer with this body."""

    async def respond(writer: asyncio.StreamWriter, _: int) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()

    return respond
