"""`kill -9` of the elected manager, under search load and under ingestion, on three real nodes with one copy of everything."""

import asyncio
import secrets
from collections.abc import AsyncIterator

import httpx
import pytest
from opentelemetry.trace import NoOpTracer

from knowledge.adapters.opensearch import OpenSearchBackend
from knowledge.adapters.opensearch_mapping import index_body
from knowledge.errors import BackendError
from tests.cluster.gateway import client_of, green, manager_and_other
from tests.contract.places import DIMENSION, FINGERPRINT, TENANT, lexical, record
from tests.parts.opensearch.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PASSAGES = 300
SEARCHERS = 4
BEFORE_S, AFTER_S = 2.0, 12.0
WORDS = ("wasser", "licht", "erde", "blatt", "wurzel")
GIVE_UP_S = 120.0


@pytest.fixture
async def backend(cluster: Cluster) -> AsyncIterator[tuple[OpenSearchBackend, str, str]]:
    """A backend that talks to a node which stays, the manager's name, and that node's URL."""
    manager, url = await manager_and_other(cluster)
    made = OpenSearchBackend(url, f"kgtest-{secrets.token_hex(4)}", tracer=NoOpTracer(), pool_size=8)
    await made.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    yield made, manager, url
    await made.aclose()


async def test_searches_go_on(cluster: Cluster, backend: tuple[OpenSearchBackend, str, str]) -> None:
    """No search is answered with an error; each answer is the one from before, or says what it lacks."""
    store, manager, url = backend
    await store.write(TENANT, [record(f"p{index:03}", f"{WORDS[index % 5]} {WORDS[index // 5 % 5]}") for index in range(PASSAGES)], [])
    await green(url)
    loop, answers = asyncio.get_running_loop(), list[tuple[float, httpx.Response]]()
    async with client_of(store, url) as client:
        before = {word: (await client.post("/search", json={"query": word, "top_k": 20})).json()["results"] for word in WORDS}
        killed_at = loop.time() + BEFORE_S
        ends_at = killed_at + AFTER_S

        async def searcher(word: str) -> None:
            while loop.time() < ends_at:
                answers.append((loop.time(), await client.post("/search", json={"query": word, "top_k": 20})))

        searchers = [asyncio.create_task(searcher(WORDS[number])) for number in range(SEARCHERS)]
        await asyncio.sleep(BEFORE_S)
        cluster.kill(manager)
        await asyncio.gather(*searchers)
    assert [answer.status_code for _, answer in answers if answer.status_code != 200] == []
    known = {one["id"] for results in before.values() for one in results}
    for _, answer in answers:
        body = answer.json()
        assert body["results"] or body["degraded"]
        assert body["degraded"] or {one["id"] for one in body["results"]} <= known
    assert sum(at > killed_at + AFTER_S / 2 and not answer.json()["degraded"] for at, answer in answers) > 0


async def test_writes_lose_nothing_and_write_nothing_twice(cluster: Cluster, backend: tuple[OpenSearchBackend, str, str]) -> None:
    """A writer that repeats what was not acknowledged ends with each passage exactly once."""
    store, manager, url = backend
    batches = [[record(f"w{number:02}-{index:02}", f"wasser w{number}") for index in range(40)] for number in range(40)]
    await store.write(TENANT, batches[0], [])
    await green(url)
    loop, repeated = asyncio.get_running_loop(), 0
    for number, batch in enumerate(batches):
        if number == 10:
            cluster.kill(manager)
        gives_up_at = loop.time() + GIVE_UP_S
        while True:
            try:
                if not await store.write(TENANT, batch, []):
                    break
            except BackendError:
                repeated += 1
            assert loop.time() < gives_up_at
    [result] = await store.msearch([lexical("wasser", size=1000)], 30)
    assert not result.failed
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        count = (await client.get(f"{url}/{store._alias}/_count")).json()["count"]
    assert count == sum(map(len, batches))


async def test_a_lost_shard_is_reported(cluster: Cluster) -> None:
    """Without a second copy a part of the index is gone with its node: the rest is answered, and the answer says so."""
    manager, url = await manager_and_other(cluster)
    alias = f"kgtest-{secrets.token_hex(4)}"
    body = index_body(alias, FINGERPRINT, DIMENSION, 0)
    body["settings"]["index"]["number_of_shards"] = 3
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        (await client.put(f"{url}/{alias}-1", json=body)).raise_for_status()
        shards = (await client.get(f"{url}/_cat/shards/{alias}?format=json")).json()
    assert len({shard["node"] for shard in shards}) == 3
    store = OpenSearchBackend(url, alias, tracer=NoOpTracer(), pool_size=8)
    await store.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    await store.write(TENANT, [record(f"p{index:03}", "wasser") for index in range(PASSAGES)], [])
    async with client_of(store, url) as gateway:
        whole = (await gateway.post("/search", json={"query": "wasser", "top_k": 20})).json()
        assert whole["degraded"] == []
        cluster.kill(manager)
        gives_up_at = asyncio.get_running_loop().time() + GIVE_UP_S
        while True:
            answer = await gateway.post("/search", json={"query": "wasser", "top_k": 20})
            assert answer.status_code == 200
            if "shards" in answer.json()["degraded"]:
                break
            assert asyncio.get_running_loop().time() < gives_up_at
    assert answer.json()["results"]
    # A writer decides by what is stored what to remove: with a part of it unreadable it must not.
    with pytest.raises(BackendError):
        (await store.stored_chunks(TENANT, ["doc-p000"]))["doc-p000"]
    await store.aclose()
