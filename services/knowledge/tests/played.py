"""A server that plays OpenSearch: it answers what a test tells it, and keeps what it was asked."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

SOURCE = {
    "id": "a",
    "document_id": "d",
    "title": "t",
    "content": "c",
    "language": "de",
    "metadata": {},
    "category": "",
    "tags": [],
    "importance": 1.0,
    "identifiers": [],
}
SHARDS = {"total": 2, "successful": 2, "skipped": 0, "failed": 0}
GOOD = {"timed_out": False, "_shards": SHARDS, "hits": {"hits": [{"_score": 0.75, "_source": SOURCE}]}, "status": 200}


class Played:
    """A server that answers what it is told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[dict[str, Any]]]] = []
        self.url: tuple[Any, ...] = ()
        self.answers: list[Callable[[web.Request], Awaitable[web.StreamResponse]]] = []
        self.mapping: dict[str, Any] | None = None
        """What a look at the alias finds, out of turn; None for the next answer."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """The next answer; the last one again and again."""
        text = await request.text()
        self.asked.append((request.path_qs, [json.loads(line) for line in text.splitlines() if line]))
        if self.mapping is not None and request.path.endswith("/_mapping"):
            return web.json_response(self.mapping)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request)

    def says(self, *bodies: object, status: int = 200) -> None:
        """Answer with JSON."""
        for body in bodies:
            self.answers.append(self.json(body, status))

    @staticmethod
    def json(body: object, status: int) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """One answer with JSON."""

        async def answer(_: web.Request) -> web.StreamResponse:
            return web.json_response(body, status=status)

        return answer

    def hangs_up(self, times: int = 1) -> None:
        """Close the connection instead of an answer."""

        async def answer(request: web.Request) -> web.StreamResponse:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()

        self.answers.extend([answer] * times)

    def sleeps(self, seconds: float) -> None:
        """Answer too late."""

        async def answer(_: web.Request) -> web.StreamResponse:
            await asyncio.sleep(seconds)
            return web.json_response({"responses": [GOOD]})

        self.answers.append(answer)
