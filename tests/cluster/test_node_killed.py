"""`kill -9` of the elected manager, under search load and under ingestion, on three real nodes with one copy of everything."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Literal

import httpx
import jwt
import pytest
from opentelemetry.trace import NoOpTracer

from knowledge.adapters.opensearch import OpenSearchBackend
from knowledge.app import Adapters, create_app
from knowledge.errors import BackendError
from knowledge.models import Embeddings
from knowledge.settings import IdentitySettings, ProcessSettings, RerankerSettings, SearchSettings, Settings, TimeSettings
from tests.contract.places import DIMENSION, FINGERPRINT, TENANT, embed, lexical, record
from tests.parts.opensearch.cluster import Cluster, three_nodes

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

SECRET = "three-nodes-secret-of-32-bytes-or-more"
PASSAGES = 300
SEARCHERS = 4
BEFORE_S, AFTER_S = 2.0, 12.0
WORDS = ("wasser", "licht", "erde", "blatt", "wurzel")
GIVE_UP_S = 120.0


class ToyEmbedder:
    """The contract suite's toy embedding behind the port."""

    async def embed(self, texts: Sequence[str], kind: Literal["query", "passage"], timeout_s: float) -> Embeddings:
        """One vector a text."""
        return Embeddings(tuple(embed(text) for text in texts), "toy", FINGERPRINT)

    async def info(self, timeout_s: float) -> dict[str, Any]:
        """What the real service would say of itself."""
        return {"fingerprint": FINGERPRINT, "dimension": DIMENSION, "model": "toy"}

    async def aclose(self) -> None:
        """Nothing is open."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three nodes of this test's own: it kills one."""
    with three_nodes() as formed:
        yield formed


async def manager_and_other(cluster: Cluster) -> tuple[str, str]:
    """The name of the elected manager, and the URL of a node that is not it."""
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        url = cluster.nodes["node-1"].url
        manager = (await client.get(f"{url}/_cat/cluster_manager?h=node")).text.strip()
    return manager, next(node.url for name, node in cluster.nodes.items() if name != manager)


async def green(url: str) -> None:
    """Wait until every copy is assigned."""
    async with httpx.AsyncClient(trust_env=False, timeout=90) as client:
        answer = await client.get(f"{url}/_cluster/health?wait_for_status=green&timeout=60s")
        assert answer.json()["status"] == "green"


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
    settings = Settings(
        SearchSettings(search_backend="opensearch", opensearch_url=url),
        RerankerSettings(reranker_enabled=False),
        TimeSettings(),
        IdentitySettings(auth_jwt_secret=SECRET, knowledge_env="development"),
        ProcessSettings(),
    )
    app = create_app(settings, adapters=Adapters(store, ToyEmbedder(), None, None))
    token = jwt.encode({"sub": "t", "tenant": TENANT, "roles": ["reader"], "exp": 4102444800}, SECRET, algorithm="HS256")
    headers = {"Authorization": f"Bearer {token}"}
    loop, answers = asyncio.get_running_loop(), list[tuple[float, httpx.Response]]()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway", headers=headers, timeout=60) as client:
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
