"""A reindex and its rollback on three nodes, under searches and writes, while a node is killed: no search fails, nothing is lost."""

import asyncio
import secrets

import httpx
import pytest
from opentelemetry.trace import NoOpTracer

from knowledge.adapters.opensearch import OpenSearchBackend
from knowledge.adapters.opensearch_client import connect
from knowledge.adapters.opensearch_reindexing import OpenSearchReindexing
from knowledge.errors import BackendError
from knowledge.ingest.reindex import Synchronisation, compare
from knowledge.ingest.vectors import Embedding
from knowledge.ports import IndexPair
from tests.cluster.gateway import ToyEmbedder, client_of, green, manager_and_other
from tests.contract.places import DIMENSION, FINGERPRINT, TENANT, record
from tests.parts.opensearch.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PASSAGES = 4_000
KILL_AFTER_S = 1.0
GIVE_UP_S = 240.0


class Load:
    """Searches and writes that go on until they are told to stop, and what came of them."""

    def __init__(self, store: OpenSearchBackend, client: httpx.AsyncClient) -> None:
        self._store = store
        self._client = client
        self.over = asyncio.Event()
        self.answers: list[httpx.Response] = []
        self.acknowledged: dict[str, str] = {}
        """By passage: the record hash that was written last, or `gone`."""

    async def search(self) -> None:
        """One search after the other."""
        while not self.over.is_set():
            self.answers.append(await self._client.post("/search", json={"query": "wasser", "top_k": 20}))

    async def write(self) -> None:
        """Change one passage after the other; remove every fifth."""
        number = 0
        while not self.over.is_set():
            name, number = f"p{number * 37 % PASSAGES:05}", number + 1
            try:
                if number % 5 == 0:
                    await self._store.delete_document(TENANT, f"doc-{name}")
                    self.acknowledged[name] = "gone"
                elif not await self._store.write(TENANT, [record(name, f"licht w{number}", record_hash=f"n{number}")], []):
                    self.acknowledged[name] = f"n{number}"
            except BackendError:
                self.acknowledged.pop(name, None)  # told that it failed: either state is right


async def until_done(reindexing: OpenSearchReindexing, *, back: bool) -> IndexPair:
    """What the command does, run again and again until a run ends well."""
    gives_up_at = asyncio.get_running_loop().time() + GIVE_UP_S
    while True:
        try:
            pair = await (reindexing.previous() if back else reindexing.begin(FINGERPRINT, DIMENSION))
            await Synchronisation(pair, Embedding(ToyEmbedder(), fingerprint=FINGERPRINT, timeout_s=5)).run()
            assert (await compare(pair)).worse == []
            await pair.swap()
        except BackendError:
            assert asyncio.get_running_loop().time() < gives_up_at
            await asyncio.sleep(0.5)
        else:
            return pair


async def hashes(url: str, index: str) -> dict[str, str]:
    """The record hash of every passage in an index, past the product."""
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        await client.post(f"{url}/{index}/_refresh")
        answer = (await client.post(f"{url}/{index}/_search", json={"size": 10_000, "_source": ["id", "record_hash"]})).json()
    return {hit["_source"]["id"]: hit["_source"]["record_hash"] for hit in answer["hits"]["hits"]}


async def test_reindex_and_rollback_while_a_node_dies(cluster: Cluster) -> None:
    """The command is run again where the dying node broke it off; searches are complete or marked; every acknowledged write is in both."""
    manager, url = await manager_and_other(cluster)
    alias = f"kgtest-{secrets.token_hex(4)}"
    store = OpenSearchBackend(url, alias, tracer=NoOpTracer(), pool_size=8)
    await store.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    for start in range(0, PASSAGES, 500):
        await store.write(TENANT, [record(f"p{index:05}", f"wasser w{index}") for index in range(start, start + 500)], [])
    await green(url)
    reindexing = OpenSearchReindexing(connect(url, username=None, password=None, ca_file=None, pool_size=4), alias)
    async with client_of(store, url) as client, asyncio.TaskGroup() as tasks:
        load = Load(store, client)
        for work in (load.search(), load.search(), load.write()):
            tasks.create_task(work)
        asyncio.get_running_loop().call_later(KILL_AFTER_S, cluster.kill, manager)
        swapped = await until_done(reindexing, back=False)
        await store.ready()
        await until_done(reindexing, back=True)
        load.over.set()
    assert [answer.status_code for answer in load.answers if answer.status_code != 200] == []
    assert all(answer.json()["results"] or answer.json()["degraded"] for answer in load.answers)
    assert len(load.acknowledged) > 20
    for index in (swapped.source.name, swapped.target.name):
        found = await hashes(url, index)
        assert {name: found.get(name, "gone") for name in load.acknowledged} == load.acknowledged
    await reindexing.aclose()
    await store.aclose()
