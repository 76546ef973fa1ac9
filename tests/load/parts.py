"""The parts of a search made by hand, as somebody without the gateway would call them. OpenSearch's bodies are written here anew."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import httpx
from opentelemetry.trace import NoOpTracer

from knowledge.adapters.embedded import EmbeddedBackend
from knowledge.models import Leg, LegQuery
from tests.load.figures import MeasurementFailed
from tests.load.stack import ROLE, SUBJECT, TENANT, VISIBILITY

DEPTH = 50
TIMEOUT_S = 30.0

FILTER: list[dict[str, Any]] = [
    {"term": {"tenant": TENANT}},
    {
        "bool": {
            "should": [{"terms": {"allowed_roles": [ROLE]}}, {"terms": {"allowed_subjects": [SUBJECT]}}],
            "minimum_should_match": 1,
        }
    },
]
COMMON: dict[str, Any] = {
    "size": DEPTH,
    "timeout": "4000ms",
    "track_total_hits": False,
    "_source": ["id", "document_id", "title", "content", "language", "metadata", "category", "tags", "importance", "identifiers"],
}

Found = list[tuple[str, float]]
"""Chunk ids with scores."""


def new_client() -> httpx.AsyncClient:
    """A client that keeps its connections and knows no proxy."""
    return httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False)


async def post(client: httpx.AsyncClient, url: str, body: object, headers: dict[str, str] | None = None) -> Any:
    """POST JSON and read the answer's.

    Raises:
        MeasurementFailed: any status but 200, or no answer.
    """
    try:
        response = await client.post(url, json=body, headers=headers)
    except httpx.HTTPError as error:
        raise MeasurementFailed(f"{url} gave no answer ({type(error).__name__})") from error
    if response.status_code != 200:
        raise MeasurementFailed(f"{url} answered {response.status_code}: {response.text[:500]}")
    return response.json()


class Legs(Protocol):
    """A lexical and a vector search of one backend."""

    async def search(self, question: str, vector: Sequence[float]) -> list[Found]:
        """Both lists, best first."""

    async def aclose(self) -> None:
        """Let go of it."""


class OpenSearchLegs:
    """One raw `_msearch`, both lists parsed."""

    def __init__(self, client: httpx.AsyncClient, url: str, alias: str) -> None:
        self._client = client
        self._url = f"{url}/{alias}/_msearch"

    async def search(self, question: str, vector: Sequence[float]) -> list[Found]:
        """Two bodies, one request."""
        lines = ["{}", json.dumps(lexical_body(question)), "{}", json.dumps(vector_body(vector)), ""]
        response = await self._client.post(self._url, content="\n".join(lines), headers={"Content-Type": "application/x-ndjson"})
        items = response.json().get("responses", [])
        if len(items) != 2 or any("error" in item for item in items):
            raise MeasurementFailed(f"the raw _msearch failed: {response.text[:500]}")
        return [[(hit["_source"]["id"], hit["_score"]) for hit in item["hits"]["hits"]] for item in items]

    async def aclose(self) -> None:
        """The client is its owner's."""


def lexical_body(question: str) -> dict[str, Any]:
    """BM25 over the field of each language."""
    matches = [{"match": {f"text.{name}": {"query": question}}} for name in ("de", "en", "std")]
    clause = {"bool": {"must": [{"dis_max": {"queries": matches}}], "filter": FILTER}}
    return {**COMMON, "query": clause, "sort": [{"_score": "desc"}, {"id": "asc"}], "track_scores": True}


def vector_body(vector: Sequence[float]) -> dict[str, Any]:
    """Nearest neighbours, filtered while searching."""
    near = {"vector": list(vector), "k": DEPTH, "filter": {"bool": {"filter": FILTER}}}
    return {**COMMON, "query": {"knn": {"vector": near}}}


class EmbeddedLegs:
    """The product's embedded backend in this process, on the gateway's own file."""

    def __init__(self, path: Path) -> None:
        self.backend = EmbeddedBackend(path, tracer=NoOpTracer())

    async def search(self, question: str, vector: Sequence[float]) -> list[Found]:
        """One direct call."""
        results = await self.backend.msearch(
            [
                LegQuery(Leg.LEXICAL, VISIBILITY, DEPTH, text=question),
                LegQuery(Leg.VECTOR, VISIBILITY, DEPTH, vector=tuple(vector)),
            ],
            TIMEOUT_S,
        )
        if any(result.failed for result in results):
            raise MeasurementFailed("a leg of the embedded backend failed")
        return [[(hit.passage.id, hit.score) for hit in result.hits] for result in results]

    async def aclose(self) -> None:
        """Close the file."""
        await self.backend.aclose()


class Models:
    """The two model services, called directly."""

    def __init__(self, client: httpx.AsyncClient, embedding_url: str, reranker_url: str) -> None:
        self._client = client
        self._embed_url = f"{embedding_url}/embed"
        self._rerank_url = f"{reranker_url}/rerank"

    async def embed(self, question: str) -> list[float]:
        """The vector of a question."""
        answer = await post(self._client, self._embed_url, {"texts": [question], "kind": "query"})
        vector: list[float] = answer["vectors"][0]
        return vector

    async def rerank(self, question: str, excerpts: Sequence[str]) -> dict[int, float]:
        """Scores by index of the excerpt."""
        answer = await post(self._client, self._rerank_url, {"query": question, "documents": list(excerpts)})
        return {item["index"]: item["score"] for item in answer["results"]}
