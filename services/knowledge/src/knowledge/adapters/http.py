"""The outbound HTTP client that all adapters share: no redirects, bounded answers, one retry at most, none after a time-out."""

from collections.abc import Mapping
from typing import Any

import httpx
from opentelemetry import propagate
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt

MAX_ANSWER_BYTES = 16 * 1024 * 1024
CONNECT_TIMEOUT_S = 2.0


class AnswerTooLarge(Exception):
    """The decompressed answer passed the cap."""


def new_client(*, max_connections: int = 100) -> httpx.AsyncClient:
    """A client without redirects, environment proxies or ambient credentials."""
    limits = httpx.Limits(max_connections=max_connections, max_keepalive_connections=max_connections)
    return httpx.AsyncClient(follow_redirects=False, trust_env=False, limits=limits)


async def post_json(
    client: httpx.AsyncClient, url: str, body: Mapping[str, Any], *, timeout_s: float, headers: Mapping[str, str] | None = None
) -> httpx.Response:
    """POST `body`; the answer is read, whatever its status.

    A connection that breaks before an answer is tried once more, at once: it was a stale one, or another instance takes the next.
    The caller bounds the whole by the time it has left.

    Raises:
        httpx.TimeoutException, httpx.TransportError: as httpx names them.
        AnswerTooLarge: more than `MAX_ANSWER_BYTES` after decompression.
    """
    all_headers: dict[str, str] = dict(headers or {})
    propagate.inject(all_headers)
    timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S))
    request = client.build_request("POST", url, json=body, headers=all_headers, timeout=timeout)
    retrying = AsyncRetrying(
        stop=stop_after_attempt(2),
        retry=retry_if_exception_type((httpx.ConnectError, httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)),
        reraise=True,
    )
    async for attempt in retrying:
        with attempt:
            return await _send(client, request)
    raise AssertionError("unreachable: the retry loop returns or raises")


async def get_json(client: httpx.AsyncClient, url: str, *, timeout_s: float) -> Any:
    """GET and decode JSON; one try.

    Raises:
        httpx.HTTPError: transport, time-out or a status other than 2xx.
        ValueError: not JSON.
    """
    response = await _send(client, client.build_request("GET", url, timeout=timeout_s))
    response.raise_for_status()
    return json_of(response)


def json_of(response: httpx.Response) -> Any:
    """The JSON value of a body.

    Raises:
        ValueError: not JSON, or nested too deeply to be read.
    """
    try:
        return response.json()
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


async def _send(client: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
    response = await client.send(request, stream=True)
    try:
        chunks, size = [], 0
        async for chunk in response.aiter_bytes():
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                raise AnswerTooLarge
            chunks.append(chunk)
    finally:
        await response.aclose()
    headers = [(name, value) for name, value in response.headers.items() if name not in ("content-encoding", "content-length")]
    return httpx.Response(response.status_code, headers=headers, content=b"".join(chunks), request=request)
