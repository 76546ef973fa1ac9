"""A gateway in process over a cluster of three, with the contract suite's toy embedding."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx
import jwt

from knowledge.app import Adapters, create_app
from knowledge.models import Embeddings
from knowledge.ports import Backend
from knowledge.settings import IdentitySettings, ProcessSettings, RerankerSettings, SearchSettings, Settings, TimeSettings
from tests.contract.places import DIMENSION, FINGERPRINT, TENANT, embed
from tests.parts.opensearch.cluster import Cluster

SECRET = "three-nodes-secret-of-32-bytes-or-more"


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


@asynccontextmanager
async def client_of(store: Backend, url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client with a reader's token, of a gateway that searches `store` without a reranker."""
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
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway", headers=headers, timeout=60) as client:
        yield client


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
