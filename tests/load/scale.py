"""A search through the gateway over HTTP against one `_msearch` written by hand, at growing numbers of passages, without models.

The client is the same for both: aiohttp, orjson, the event loop that the gateway has. It parses what it gets: both whole result lists
from OpenSearch, or the gateway's answer.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from time import perf_counter
from typing import Any

import aiohttp
import orjson

from tests.load.figures import MeasurementFailed, SideBySide
from tests.load.parts import COMMON, DEPTH, FILTER, Found
from tests.load.passages import SEARCHED_SHELVES, Asked, Passages
from tests.load.scale_stack import (
    Gateway,
    Node,
    bulk_actions,
    data_bytes,
    load_in_bulk,
    refresh,
    running_gateway,
    wait_until_quiet,
)

TOP_K = 10
WARM_UP = 200
"""Searches of each side before the first that counts, at each size."""

PAIRS = 400
CLIENTS = 16
BLOCK = 160
"""Searches of one side in a row while throughput is measured."""

BLOCKS = 6
LEAST_FOUND = 0.9
"""Of the gateway's results that the raw lists must hold, or the two sides do not do the same work."""

NARROWED = [*FILTER, {"terms": {"tags": list(SEARCHED_SHELVES)}}]
JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}

Search = Callable[[Asked], Awaitable[Any]]
Advance = Callable[[int], None]


@dataclass(slots=True)
class AtSize:
    """What was measured with `passages` passages in the index. `rate` is seconds of equal blocks of concurrent searches."""

    passages: int
    megabytes: float = 0.0
    pair: SideBySide = field(default_factory=SideBySide)
    blocks: SideBySide = field(default_factory=SideBySide)

    @property
    def throughput_ratio(self) -> float:
        """Searches a second through the gateway over those by hand, at `CLIENTS` concurrent clients."""
        return sum(self.blocks.parts) / sum(self.blocks.gateway)


@dataclass(frozen=True, slots=True)
class Client:
    """Both sides, over one pool of connections each."""

    session: aiohttp.ClientSession
    node: Node
    alias: str
    gateway: Gateway

    async def through_gateway(self, asked: Asked) -> list[str]:
        """The ids of the answer, best first."""
        body = {"query": asked.text, "top_k": TOP_K, "rerank": False, "filters": {"tags": list(SEARCHED_SHELVES)}}
        answer = await self._post(f"{self.gateway.url}/search", orjson.dumps(body), {**JSON, **self.gateway.bearer})
        if answer["degraded"]:
            raise MeasurementFailed(f"the gateway did not do its whole work: degraded {answer['degraded']}")
        return [one["id"] for one in answer["results"]]

    async def by_hand(self, asked: Asked) -> list[Found]:
        """Both lists out of one `_msearch`."""
        lines = [b"{}", orjson.dumps(lexical_body(asked.text)), b"{}", orjson.dumps(vector_body(asked.vector)), b""]
        answer = await self._post(f"{self.node.url}/{self.alias}/_msearch", b"\n".join(lines), NDJSON)
        items = answer["responses"]
        if len(items) != 2 or any("error" in item or item["timed_out"] for item in items):
            raise MeasurementFailed("the raw _msearch failed")
        return [[(hit["_source"]["id"], hit["_score"]) for hit in item["hits"]["hits"]] for item in items]

    async def _post(self, url: str, body: bytes, headers: dict[str, str]) -> Any:
        try:
            async with self.session.post(url, data=body, headers=headers) as response:
                content = await response.read()
        except aiohttp.ClientError as error:
            raise MeasurementFailed(f"{url} gave no answer ({type(error).__name__})") from error
        if response.status != 200:
            raise MeasurementFailed(f"{url} answered {response.status}: {content[:500]!r}")
        return orjson.loads(content)


def lexical_body(question: str) -> dict[str, Any]:
    """BM25 over the field of each language."""
    matches = [{"match": {f"text.{name}": {"query": question}}} for name in ("de", "en", "std")]
    clause = {"bool": {"must": [{"dis_max": {"queries": matches}}], "filter": NARROWED}}
    return {**COMMON, "query": clause, "sort": [{"_score": "desc"}, {"id": "asc"}], "track_scores": True}


def vector_body(vector: Sequence[float]) -> dict[str, Any]:
    """Nearest neighbours, filtered while searching."""
    near = {"vector": vector, "k": DEPTH, "filter": {"bool": {"filter": NARROWED}}}
    return {**COMMON, "query": {"knn": {"vector": near}}}


def measure(node: Node, passages: Passages, sizes: Sequence[int], task: Callable[[str, int], Advance]) -> list[AtSize]:
    """Each size in turn, in one index that grows.

    Args:
        node: with nothing else to do.
        passages: what is written and asked.
        sizes: ascending.
        task: begins a piece of work of so many steps, and says how to tell of them.
    """
    import uvicorn

    # The client has the event loop that the gateway has.
    loop_factory = uvicorn.Config(lambda: None).get_loop_factory()
    asked, found, stored = passages.questions(), list[AtSize](), 0
    with node.alias() as alias, running_gateway(node, alias, asked) as gateway:
        for size in sizes:
            _load(node, passages, alias, stored, size, task(f"writing up to {size:,} passages", size - stored))
            stored = size
            advance = task(f"searching {size:,} passages", WARM_UP + PAIRS + 2 * BLOCKS * BLOCK)
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                at_size = runner.run(_measure_one(node, alias, gateway, asked, size, advance))
            found.append(at_size)
    return found


def _load(node: Node, passages: Passages, alias: str, first: int, last: int, advance: Advance) -> None:
    load_in_bulk(node, bulk_actions(passages.records(first, last), alias), lambda: advance(1))
    refresh(node, alias)
    wait_until_quiet(node, alias)
    counted = node.client.count(index=alias)["count"]
    if counted != last:
        raise MeasurementFailed(f"the index holds {counted} passages, not {last}")


async def _measure_one(node: Node, alias: str, gateway: Gateway, asked: Sequence[Asked], size: int, advance: Advance) -> AtSize:
    found = AtSize(size, data_bytes(node, alias) / 1e6)
    connector = aiohttp.TCPConnector(limit=2 * CLIENTS)
    # Or the node would compress its answers for this client and not for the gateway, which costs more than the search itself.
    async with aiohttp.ClientSession(connector=connector, skip_auto_headers=["Accept-Encoding"]) as session:
        client = Client(session, node, alias, gateway)
        await _check_same_work(client, asked)
        await _pairs(client, asked, WARM_UP, SideBySide(), advance)
        await _pairs(client, asked, PAIRS, found.pair, advance)
        sides = [(client.through_gateway, found.blocks.gateway), (client.by_hand, found.blocks.parts)]
        for _ in range(BLOCKS):
            random.shuffle(sides)
            for search, seconds in sides:
                seconds.append(await _block(search, asked))
                advance(BLOCK)
    return found


async def _check_same_work(client: Client, asked: Sequence[Asked]) -> None:
    """Nearly all that the gateway shows must stand in the lists made by hand."""
    inside = total = 0
    for one in asked:
        shown, lists = await client.through_gateway(one), await client.by_hand(one)
        known = {name for some in lists for name, _ in some}
        inside += sum(name in known for name in shown)
        total += TOP_K
    if inside < LEAST_FOUND * total:
        raise MeasurementFailed(f"only {inside} of {total} results stand in the raw lists: the two sides do not do the same work")


async def _pairs(client: Client, asked: Sequence[Asked], count: int, pair: SideBySide, advance: Advance) -> None:
    """The same question by both sides, one right after the other; which comes first is left to chance."""
    sides: list[tuple[Search, list[float]]] = [(client.through_gateway, pair.gateway), (client.by_hand, pair.parts)]
    for one in islice(cycle(asked), count):
        random.shuffle(sides)
        for search, seconds in sides:
            started = perf_counter()
            await search(one)
            seconds.append(perf_counter() - started)
        advance(1)


async def _block(search: Search, asked: Sequence[Asked]) -> float:
    """Seconds for `BLOCK` searches by `CLIENTS` clients, each of which asks again as soon as it has its answer."""
    waiting = islice(cycle(asked), BLOCK)

    async def ask() -> None:
        for one in waiting:
            await search(one)

    started = perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(CLIENTS):
            tasks.create_task(ask())
    return perf_counter() - started
