"""What callers send in a soak: usual requests, long ones, repeated ones, tight deadlines, bad input, and callers that go away."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

WORDS = (
    *("water", "monstera", "soil", "week", "winter", "light", "leaf", "root", "pot", "drain", "yellow", "spot", "pest", "feed"),
    *("Wasser", "Erde", "Blatt", "gießen", "Dünger", "Licht", "Wurzel", "umtopfen", "\U0001f335", "pH", "6.2", "POL-55012"),
)
QUERY = "how often do I water a monstera"
LATE_S = 2.0
"""How much later than its deadline an answer may be seen by a caller on a busy machine."""
EXPECTED = {200, 429, 503}


@dataclass(slots=True)
class Tally:
    """What came back, and what should not have."""

    answers: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


class Traffic:
    """Callers of one service.

    Args:
        url: where it listens.
        seed: of what they send.
    """

    def __init__(self, url: str, client: httpx.AsyncClient, seed: int = 7) -> None:
        self.url = url
        self.client = client
        self.chance = random.Random(seed)
        self.tally = Tally()

    def passage(self, chars: int) -> str:
        """A text that hardly comes twice."""
        return " ".join(self.chance.choices(WORDS, k=chars // 5))[:chars]

    def passages(self, count: int, shortest: int = 80, longest: int = 1800) -> list[str]:
        """Of mixed lengths."""
        return [self.passage(self.chance.randint(shortest, longest)) for _ in range(count)]

    async def run(self, seconds: float) -> Tally:
        """Let every kind of caller come again and again."""
        ends = time.monotonic() + seconds
        kinds: tuple[Callable[[], Awaitable[None]], ...] = (
            *(self._usual, self._usual, self._repeated, self._long, self._tight, self._bad, self._gone),
        )

        async def again(kind: Callable[[], Awaitable[None]]) -> None:
            while time.monotonic() < ends:
                await kind()
                await asyncio.sleep(self.chance.uniform(0, 0.2))

        await asyncio.gather(*(again(kind) for kind in kinds))
        return self.tally

    async def _ask(self, kind: str, expected: set[int], documents: list[str], **body: Any) -> None:
        started = time.monotonic()
        response = await self.client.post(f"{self.url}/rerank", json={"query": QUERY, "documents": documents, **body})
        late_s = time.monotonic() - started - body.get("deadline_ms", 25_000) / 1000
        self.tally.answers[f"{kind} {response.status_code}"] += 1
        if response.status_code not in expected:
            self.tally.faults.append(f"{kind}: {response.status_code}")
        if late_s > LATE_S:
            self.tally.faults.append(f"{kind}: {late_s:.1f} s after its deadline")
        if response.status_code == 429:
            await asyncio.sleep(response.json()["retry_after_ms"] / 1000)

    async def _usual(self) -> None:
        await self._ask("usual", EXPECTED, self.passages(15), allow_partial=True)

    async def _repeated(self) -> None:
        await self._ask("repeated", EXPECTED, [f"{WORDS[n]} " * 60 for n in range(15)])

    async def _long(self) -> None:
        await self._ask("long", EXPECTED, self.passages(100, 500, 4000), deadline_ms=8000, allow_partial=True)
        await asyncio.sleep(2)

    async def _tight(self) -> None:
        await self._ask(
            "tight", EXPECTED, self.passages(15), deadline_ms=self.chance.randint(1, 400), allow_partial=self.chance.random() < 0.5
        )

    async def _bad(self) -> None:
        await self._ask("blank", EXPECTED, ["", " \x00", "</s>[SEP]" * 50, "x" * 3000, self.passage(100)])
        await self._ask("bad", {422}, ["x" * 20_000])
        await asyncio.sleep(0.5)

    async def _gone(self) -> None:
        await leave(self.url, self.passages(30), self.chance.uniform(0.01, 0.3))
        self.tally.answers["gone"] += 1


async def leave(url: str, documents: list[str], after_s: float) -> None:
    """Ask, and go away before the answer."""
    address = urlsplit(url)
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    content = json.dumps({"query": QUERY, "documents": documents}).encode()
    head = f"POST /rerank HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    await writer.drain()
    await asyncio.sleep(after_s)
    writer.close()
    await writer.wait_closed()
