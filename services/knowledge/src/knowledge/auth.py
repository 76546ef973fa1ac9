"""Identity out of a signed token, and nothing else. Default deny: what is not said plainly by a valid token is refused.

HS256 with a shared secret, or RS256, PS256, ES256 and EdDSA with the keys of a JWKS. `exp`, `sub` and the tenant are required.
Headers that name keys (`jku`, `x5u`, `jwk`, `x5c`) are ignored: keys come from the settings alone.
"""

from typing import Any

import jwt

from knowledge.errors import Unauthenticated
from knowledge.models import Identity
from knowledge.ports import SigningKeys
from knowledge.settings import IdentitySettings

SHARED_SECRET_ALGORITHMS = ("HS256",)
PUBLIC_KEY_ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
KEY_TYPES = {"RS256": "RSA", "PS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}
LEEWAY_S = 30
MAX_CLAIM_LENGTH = 256
MAX_ROLES = 1000


class Authenticator:
    """Judges tokens by the settings. `keys` is needed where they name a JWKS."""

    def __init__(self, settings: IdentitySettings, keys: SigningKeys | None = None) -> None:
        self._settings = settings
        self._keys = keys

    async def identify(self, authorization: str | None) -> Identity:
        """The identity behind an `Authorization` header.

        Raises:
            Unauthenticated: no token, or one that does not hold. The detail never repeats the token.
            KeysUnavailable: the signing keys cannot be had.
        """
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthenticated("A bearer token is required.")
        return self._identity(await self._claims(token.strip()))

    async def _claims(self, token: str) -> dict[str, Any]:
        key, algorithms = await self._key(token)
        required = ["exp", "sub", self._settings.auth_tenant_claim]
        try:
            return jwt.decode(
                token,
                key,
                algorithms=algorithms,
                leeway=LEEWAY_S,
                audience=self._settings.auth_audience or None,
                issuer=self._settings.auth_issuer or None,
                options={"require": required, "verify_aud": bool(self._settings.auth_audience)},
            )
        except jwt.ExpiredSignatureError as error:
            raise Unauthenticated("The token has expired.") from error
        except jwt.PyJWTError as error:
            raise Unauthenticated(f"The token does not hold ({type(error).__name__}).") from error

    async def _key(self, token: str) -> tuple[Any, list[str]]:
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError as error:
            raise Unauthenticated("The token is no JSON Web Token.") from error
        algorithm = str(header.get("alg"))
        allowed = SHARED_SECRET_ALGORITHMS if self._keys is None else PUBLIC_KEY_ALGORITHMS
        if algorithm not in allowed:
            raise Unauthenticated("The token's algorithm is not allowed here.")
        if self._keys is None:
            return self._settings.auth_jwt_secret.get_secret_value(), [algorithm]
        found = await self._keys.key(header.get("kid"))
        if found is None:
            raise Unauthenticated("The token's key is not known.")
        key, key_type = found
        if KEY_TYPES[algorithm] != key_type:
            raise Unauthenticated("The token's algorithm does not fit its key.")
        return key, [algorithm]

    def _identity(self, claims: dict[str, Any]) -> Identity:
        tenant = claims.get(self._settings.auth_tenant_claim)
        subject = claims.get("sub")
        roles = claims.get(self._settings.auth_roles_claim, [])
        if not _is_name(tenant) or not _is_name(subject):
            raise Unauthenticated("The token's subject and tenant must be non-empty strings.")
        if not isinstance(roles, list) or len(roles) > MAX_ROLES or not all(_is_name(role) for role in roles):
            raise Unauthenticated("The token's roles must be a list of non-empty strings.")
        return Identity(str(tenant), str(subject), frozenset(roles))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_CLAIM_LENGTH and bool(value.strip()) and value.isprintable()


def mint_development_token(settings: IdentitySettings, *, tenant: str, subject: str, roles: tuple[str, ...], now: float, ttl_s: int) -> str:
    """An HS256 token for a developer's machine. The caller has checked that this is one."""
    claims: dict[str, Any] = {
        "sub": subject,
        settings.auth_tenant_claim: tenant,
        settings.auth_roles_claim: list(roles),
        "iat": int(now),
        "exp": int(now) + ttl_s,
    }
    if settings.auth_issuer:
        claims["iss"] = settings.auth_issuer
    if settings.auth_audience:
        claims["aud"] = settings.auth_audience
    return jwt.encode(claims, settings.auth_jwt_secret.get_secret_value(), algorithm=SHARED_SECRET_ALGORITHMS[0])
