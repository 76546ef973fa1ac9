"""The embedding-service over HTTP."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any, Literal

import httpx
from opentelemetry.trace import SpanKind, StatusCode, Tracer

from knowledge.adapters.http import AnswerTooLarge, get_json, json_of, new_client, post_json
from knowledge.errors import EmbeddingError
from knowledge.models import Embeddings
from knowledge.telemetry import ERROR_TYPE, GEN_AI_MODEL, GEN_AI_OPERATION

DEADLINE_HEADER = "X-Deadline-Ms"
ANSWER_MARGIN_S = 0.05
CALLER_MARGIN_S = 0.02


class HttpEmbedder:
    """Implements the `Embedder` port over `POST /embed`."""

    def __init__(self, url: str, *, tracer: Tracer, client: httpx.AsyncClient | None = None) -> None:
        self._url = url.rstrip("/")
        self._tracer = tracer
        self._client = client or new_client()

    async def embed(self, texts: Sequence[str], kind: Literal["query", "passage"], timeout_s: float) -> Embeddings:
        """Embed all texts in one call."""
        # An exception's message and stack may hold a text: only its reason goes into the span.
        with self._tracer.start_as_current_span(
            "embeddings", kind=SpanKind.CLIENT, record_exception=False, set_status_on_exception=False
        ) as span:
            span.set_attribute(GEN_AI_OPERATION, "embeddings")
            try:
                found = await self._ask(texts, kind, timeout_s)
            except EmbeddingError as error:
                span.set_attribute(ERROR_TYPE, str(error))
                span.set_status(StatusCode.ERROR, str(error))
                raise
            span.update_name(f"embeddings {found.model}")
            span.set_attribute(GEN_AI_MODEL, found.model)
            return found

    async def _ask(self, texts: Sequence[str], kind: str, timeout_s: float) -> Embeddings:
        headers = {DEADLINE_HEADER: str(max(1, int((timeout_s - ANSWER_MARGIN_S) * 1000)))}
        body = {"texts": list(texts), "kind": kind}
        try:
            # A little before the caller stops waiting, or the span of a late call would not say so.
            async with asyncio.timeout(max(0.001, timeout_s - CALLER_MARGIN_S)):
                response = await post_json(self._client, f"{self._url}/embed", body, timeout_s=timeout_s, headers=headers)
        except (httpx.TimeoutException, TimeoutError) as error:
            raise EmbeddingError("timeout") from error
        except (httpx.DecodingError, AnswerTooLarge) as error:
            raise EmbeddingError("malformed_response") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise EmbeddingError("transport") from error
        if response.status_code != 200:
            raise EmbeddingError(f"http_{response.status_code}")
        return _decode(response, len(texts))

    async def info(self, timeout_s: float) -> dict[str, Any]:
        """What the service says of its model and its limits."""
        try:
            found = await get_json(self._client, f"{self._url}/info", timeout_s=timeout_s)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise EmbeddingError("transport") from error
        except (ValueError, AnswerTooLarge) as error:
            raise EmbeddingError("malformed_response") from error
        if not isinstance(found, dict) or not isinstance(found.get("fingerprint"), str):
            raise EmbeddingError("malformed_response")
        if type(found.get("dimension")) is not int or found["dimension"] < 1:
            raise EmbeddingError("malformed_response")
        return found

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _decode(response: httpx.Response, sent: int) -> Embeddings:
    try:
        body = json_of(response)
        vectors = tuple(tuple(map(float, vector)) for vector in body["vectors"])
        found = Embeddings(vectors, str(body["model"]), str(body["fingerprint"]))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise EmbeddingError("malformed_response") from error
    if len(vectors) != sent or len({len(vector) for vector in vectors}) != 1 or found.dimension < 1:
        raise EmbeddingError("malformed_response")
    if not all(math.isfinite(value) for vector in vectors for value in vector):
        raise EmbeddingError("malformed_response")
    return found
