"""The outbound HTTP client: no redirects, no ambient proxies or credentials, bounded answers."""

from collections.abc import Mapping
from typing import Any

import httpx

CONNECT_TIMEOUT_S = 2.0
MAX_CONNECTIONS = 100


class AnswerTooLarge(Exception):
    """The decompressed answer passed its cap."""


def new_client(timeout_s: float, transport: httpx.AsyncBaseTransport | None = None) -> httpx.AsyncClient:
    """A client whose reads wait for `timeout_s` at most; a test hands in its transport."""
    timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S))
    limits = httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS)
    return httpx.AsyncClient(transport=transport, follow_redirects=False, trust_env=False, timeout=timeout, limits=limits)


async def read_capped(response: httpx.Response, max_bytes: int) -> bytes:
    """The decompressed body of a streamed answer.

    Raises:
        AnswerTooLarge: more than `max_bytes`.
        httpx.HTTPError: as httpx names them.
    """
    chunks, size = [], 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > max_bytes:
            raise AnswerTooLarge
        chunks.append(chunk)
    return b"".join(chunks)


async def get_json(client: httpx.AsyncClient, url: str, params: Mapping[str, str], *, max_bytes: int) -> Any:
    """GET and decode JSON; one try.

    Raises:
        httpx.HTTPError: transport, time-out or a status other than 2xx.
        AnswerTooLarge: more than `max_bytes`.
        ValueError: not JSON, or nested too deeply.
    """
    async with client.stream("GET", url, params=dict(params)) as response:
        response.raise_for_status()
        body = await read_capped(response, max_bytes)
    try:
        return httpx.Response(200, content=body).json()
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
