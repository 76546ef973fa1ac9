"""What the frontend talks to, as fakes: a gateway, Prometheus, a trace store, a writer of answers, an identity provider."""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import httpx
import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

GATEWAY, PROMETHEUS, TRACES, WRITER, ISSUER = "gateway.test", "prometheus.test", "traces.test", "writer.test", "issuer.test"
NOW = 1_750_000_000
PERSONA_SECRET = "a-secret-of-thirty-two-bytes-or-more"
SESSION_SECRET = "another-secret-of-thirty-two-bytes-or-more"
CLIENT_SECRET = "the-client-secret-that-no-browser-sees"
ANSWER_KEY = "the-answer-key-that-no-browser-sees"
CODE = "one-time-code"
Handler = Callable[[httpx.Request], Awaitable[httpx.Response]]


class FakeClock:
    """Seconds since the epoch, moved by hand."""

    def __init__(self) -> None:
        self.now = float(NOW)

    def __call__(self) -> float:
        """The time."""
        return self.now


def passage(number: int) -> dict[str, Any]:
    """One result as the gateway writes it."""
    scores = {"rrf": 0.01, "similarity": 0.8, "bm25": 1.0, "rerank": None}
    about = {"id": f"p{number}", "document_id": f"d{number}", "title": f"Title {number}", "content": f"Content {number}", "language": "en"}
    return {**about, "metadata": {}, "rank": number, "hybrid_rank": number, "scores": scores, "matched_identifiers": [], "explain": {}}


def answer(**changed: Any) -> dict[str, Any]:
    """The body of an answer."""
    rerank = {"status": "applied", "reason": None, "candidates": 2, "scored": 2}
    return {"results": [passage(1), passage(2)], "scopes": [], "ranking": "reranked", "rerank": rerank, "degraded": [], **changed}


class Chunks(httpx.AsyncByteStream):
    """A body in parts; an exception among them is raised in its place, an event is waited for."""

    def __init__(self, parts: Sequence[bytes | Exception | asyncio.Event]) -> None:
        self.parts = parts
        self.closed = False
        self.waiting = asyncio.Event()
        """Set once everything before an event among the parts has been taken."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self.parts:
            if isinstance(part, Exception):
                raise part
            if isinstance(part, asyncio.Event):
                self.waiting.set()
                await part.wait()
            else:
                yield part

    async def aclose(self) -> None:
        """Note that the caller is done."""
        self.closed = True


@dataclass
class FakeOutside:
    """All servers at once: `seen` holds the requests by host, and an entry of `answers` is what a host says next."""

    seen: dict[str, list[httpx.Request]] = field(default_factory=dict)
    answers: dict[str, httpx.Response | Exception] = field(default_factory=dict)

    def transport(self) -> httpx.MockTransport:
        """For the app."""
        return httpx.MockTransport(self._answer)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        self.seen.setdefault(host, []).append(request)
        given = self.answers.get(host, httpx.Response(200, json=answer()))
        if isinstance(given, Exception):
            raise given
        return given

    def last(self, host: str) -> httpx.Request:
        """The last request to a host."""
        return self.seen[host][-1]

    def body(self, host: str) -> Any:
        """Its JSON."""
        return json.loads(self.last(host).content)


class FakeIssuer:
    """A small OpenID provider: discovery, keys, and a token endpoint that insists on PKCE, client and redirect address."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.url = f"https://{ISSUER}"
        self.metadata: dict[str, Any] = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "end_session_endpoint": f"{self.url}/logout",
            "id_token_signing_alg_values_supported": ["RS256", "none"],
        }
        self.asked: dict[str, str] = {}
        self.id_claims: dict[str, Any] = {}
        self.access_claims: dict[str, Any] = {}
        self.access_token: str | None = None
        self.id_token: str | None = None
        self.failure: httpx2.Response | Exception | None = None

    def transport(self) -> httpx2.MockTransport:
        """For the app."""
        return httpx2.MockTransport(self.answer)

    def authorize(self, location: str) -> dict[str, str]:
        """What the browser's visit to the authorization page would bring back."""
        self.asked = {name: values[0] for name, values in parse_qs(httpx.URL(location).query.decode()).items()}
        return {"code": CODE, "state": self.asked["state"]}

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        """One call of the frontend."""
        if isinstance(self.failure, Exception):
            raise self.failure
        if self.failure is not None:
            return self.failure
        if request.url.path == "/.well-known/openid-configuration":
            return httpx2.Response(200, json=self.metadata)
        if request.url.path == "/keys":
            public = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
            return httpx2.Response(200, json={"keys": [{**public, "kid": "one", "use": "sig", "alg": "RS256"}]})
        assert request.url.path == "/token"
        return self._tokens(request)

    def sign(self, claims: dict[str, Any], *, key: rsa.RSAPrivateKey | None = None) -> str:
        """A token of this issuer, or one by another key that only says so."""
        return jwt.encode(claims, key or self.key, algorithm="RS256", headers={"kid": "one"})

    def _tokens(self, request: httpx2.Request) -> httpx2.Response:
        form = {name: values[0] for name, values in parse_qs(request.content.decode()).items()}
        basic = base64.b64encode(f"frontend:{CLIENT_SECRET}".encode()).decode()
        proof = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest()).rstrip(b"=").decode()
        good = (
            request.headers.get("Authorization") == f"Basic {basic}",
            form.get("code") == CODE,
            proof == self.asked.get("code_challenge"),
            form.get("redirect_uri") == self.asked.get("redirect_uri"),
        )
        if not all(good):
            return httpx2.Response(400, json={"error": "invalid_grant"})
        common = {"iss": self.url, "sub": "ada", "iat": NOW, "exp": 4_000_000_000}
        identity = {**common, "aud": "frontend", "nonce": self.asked.get("nonce"), "name": "Ada", **self.id_claims}
        access = {**common, "aud": "knowledge", "roles": ["reader"], "tenant": "acme", **self.access_claims}
        tokens = {"id_token": self.id_token or self.sign(identity), "access_token": self.access_token or self.sign(access)}
        return httpx2.Response(200, json={**tokens, "token_type": "Bearer", "expires_in": 3600})
