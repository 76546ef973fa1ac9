"""The signing keys of an identity provider, fetched from its JWKS and kept."""

import asyncio
from typing import Any

import httpx
import jwt

from knowledge.adapters.http import AnswerTooLarge, get_json, new_client
from knowledge.deadline import Clock
from knowledge.errors import KeysUnavailable

FETCH_TIMEOUT_S = 5.0
MIN_REFETCH_S = 30.0
RETRY_AFTER_FAILURE_S = 2.0
LIFESPAN_S = 3600.0
KEY_TYPES = ("RSA", "EC", "OKP")


class JwksKeys:
    """Implements `SigningKeys`. An unknown key id refetches at most every 30 s; known keys survive an outage of the provider."""

    def __init__(self, url: str, clock: Clock, client: httpx.AsyncClient | None = None) -> None:
        self._url = url
        self._clock = clock
        self._client = client or new_client()
        self._keys: dict[str | None, tuple[Any, str]] = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._failed = False
        self._lock = asyncio.Lock()

    async def key(self, kid: str | None) -> tuple[Any, str] | None:
        """(key, key type) of a key id."""
        known = self._keys.get(kid)
        if known is not None and not self._stale():
            return known
        async with self._lock:
            if self._may_fetch():
                await self._fetch()
        if self._failed and kid not in self._keys:
            raise KeysUnavailable("The identity provider's keys cannot be fetched; try again.", retry_after_s=5)
        return self._keys.get(kid)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _stale(self) -> bool:
        return self._fetched_at is None or self._clock() - self._fetched_at >= LIFESPAN_S

    def _may_fetch(self) -> bool:
        pause = RETRY_AFTER_FAILURE_S if self._failed else MIN_REFETCH_S
        return self._tried_at is None or self._clock() - self._tried_at >= pause

    async def _fetch(self) -> None:
        self._tried_at = self._clock()
        try:
            document = await get_json(self._client, self._url, timeout_s=FETCH_TIMEOUT_S)
            found = jwt.PyJWKSet.from_dict(document)
        except (httpx.HTTPError, ValueError, TypeError, AttributeError, AnswerTooLarge, jwt.PyJWTError):
            # Which of them it was does not matter to the caller: without keys no token can be judged.
            self._failed = True
            return
        self._failed = False
        self._fetched_at = self._tried_at
        self._keys = {key.key_id: (key.key, str(key.key_type)) for key in found.keys if _signs(key)}


def _signs(key: jwt.PyJWK) -> bool:
    """Whether a key is a public one and meant for signatures."""
    return key.key_type in KEY_TYPES and key.public_key_use in (None, "sig")
