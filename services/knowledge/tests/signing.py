"""Keys of each family, the JWKS that publishes them, and an identity provider that answers from a script."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from services.knowledge.tests.serving import FAR

ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
JWKS_URL = "https://idp.example/keys"


@cache
def private_key(kid: str) -> Any:
    """The private key of a key id; its family is the id's beginning."""
    if kid.startswith("rsa"):
        return rsa.generate_private_key(65537, 2048)
    return ec.generate_private_key(ec.SECP256R1()) if kid.startswith("ec") else ed25519.Ed25519PrivateKey.generate()


def jwk(kid: str) -> dict[str, Any]:
    """The public half as a JWK."""
    public = private_key(kid).public_key()
    kind = {"rsa": RSAAlgorithm, "ec": ECAlgorithm, "ed": OKPAlgorithm}[kid.rstrip("0123456789")]
    found = kind.to_jwk(public)
    return {**(json.loads(found) if isinstance(found, str) else found), "kid": kid, "use": "sig"}


def jwks(*kids: str) -> dict[str, Any]:
    """The key set."""
    return {"keys": [jwk(kid) for kid in kids]}


def kid_of(algorithm: str) -> str:
    """The key that an algorithm needs."""
    return {"RS256": "rsa1", "PS256": "rsa1", "ES256": "ec1", "EdDSA": "ed1"}[algorithm]


def signed(algorithm: str, kid: str | None = None, headers: Mapping[str, Any] | None = None, **claims: object) -> str:
    """A token signed with a private key."""
    name = kid or kid_of(algorithm)
    whole = {"sub": "ada", "tenant": "acme", "roles": ["reader"], "exp": FAR, **claims}
    return jwt.encode(whole, private_key(name), algorithm=algorithm, headers={"kid": name, **(headers or {})})


class FakeIdentityProvider:
    """Serves a JWKS; counts how often it is asked."""

    def __init__(self, document: object = None) -> None:
        self.document = document if document is not None else jwks("rsa1", "ec1", "ed1")
        self.answer: Callable[[httpx.Request], httpx.Response] = lambda _: httpx.Response(200, json=self.document)
        self.urls: list[str] = []

    def client(self) -> httpx.AsyncClient:
        """A client whose every request ends here."""

        def handle(request: httpx.Request) -> httpx.Response:
            self.urls.append(str(request.url))
            return self.answer(request)

        return httpx.AsyncClient(transport=httpx.MockTransport(handle))
