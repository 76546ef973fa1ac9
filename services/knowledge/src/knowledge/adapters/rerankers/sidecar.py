"""The project's own reranker-service: the provider that answers in part when time runs out."""

from collections.abc import Sequence
from typing import Any

import httpx

from knowledge.adapters.http import AnswerTooLarge, get_json, json_of, new_client, post_json
from knowledge.errors import FallbackReason, RerankError
from knowledge.models import Reranking, ScoreKind

DEADLINE_HEADER = "X-Deadline-Ms"
MISCONFIGURED_STATUSES = frozenset({401, 402, 403, 404, 498})
REJECTED_STATUSES = frozenset({400, 413, 422})
STATUS_WORDS = {
    "timeout": FallbackReason.DEADLINE,
    "loading": FallbackReason.LOADING,
    "busy": FallbackReason.OVERLOADED,
}


class SidecarReranker:
    """Implements the `Reranker` port over `POST /rerank`."""

    provider = "sidecar"
    answer_margin_s = 0.15

    def __init__(self, url: str, *, api_key: str = "", model: str = "", client: httpx.AsyncClient | None = None) -> None:
        self.model = model
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = client or new_client()

    async def rerank(self, query: str, documents: Sequence[str], wait_s: float) -> Reranking:
        """Score `documents`; the service is told to answer, in part if need be, `answer_margin_s` before `wait_s` is over."""
        deadline_ms = max(1, int((wait_s - self.answer_margin_s) * 1000))
        body: dict[str, Any] = {"query": query, "documents": list(documents), "allow_partial": True}
        if self.model:
            body["model"] = self.model
        headers = {**self._headers, DEADLINE_HEADER: str(deadline_ms)}
        try:
            response = await post_json(self._client, f"{self._url}/rerank", body, timeout_s=wait_s, headers=headers)
        except httpx.TimeoutException as error:
            # No connection at all within its own, shorter limit is the network's failure, not the model's.
            connecting = isinstance(error, httpx.ConnectTimeout)
            raise RerankError(FallbackReason.TRANSPORT if connecting else FallbackReason.CLIENT_TIMEOUT) from error
        except (httpx.DecodingError, AnswerTooLarge) as error:
            raise RerankError(FallbackReason.MALFORMED_RESPONSE) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise RerankError(FallbackReason.TRANSPORT) from error
        if response.status_code != 200:
            raise RerankError(reason_of(response), status=response.status_code)
        return decode(response)

    async def info(self, timeout_s: float) -> dict[str, Any] | None:
        """What the service declares of its limits and its model."""
        try:
            found = await get_json(self._client, f"{self._url}/info", timeout_s=timeout_s)
        except httpx.TimeoutException as error:
            raise RerankError(FallbackReason.CLIENT_TIMEOUT) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise RerankError(FallbackReason.TRANSPORT) from error
        except (ValueError, AnswerTooLarge) as error:
            raise RerankError(FallbackReason.MALFORMED_RESPONSE) from error
        return found if isinstance(found, dict) else None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def reason_of(response: httpx.Response) -> FallbackReason:
    """The fallback reason of an answer other than 200."""
    status = response.status_code
    if status in MISCONFIGURED_STATUSES:
        return FallbackReason.MISCONFIGURED
    if status in REJECTED_STATUSES:
        return FallbackReason.REJECTED
    if status == 429:
        return FallbackReason.OVERLOADED
    if status == 503:
        return STATUS_WORDS.get(_status_word(response), FallbackReason.HTTP_STATUS)
    return FallbackReason.HTTP_STATUS


def _status_word(response: httpx.Response) -> str:
    try:
        body = json_of(response)
    except ValueError:
        return ""
    return str(body.get("status", "")) if isinstance(body, dict) else ""


def decode(response: httpx.Response) -> Reranking:
    """The body of a 200 as pairs, unchecked.

    Raises:
        RerankError: `malformed_response` if it has not even the shape.
    """
    try:
        body = json_of(response)
        return Reranking(
            results=[(item["index"], item["score"]) for item in body["results"]],
            unscored=[(item["index"], item["reason"]) for item in body.get("unscored", [])],
            model=str(body["model"]),
            score_kind=ScoreKind(body["score_kind"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RerankError(FallbackReason.MALFORMED_RESPONSE) from error
