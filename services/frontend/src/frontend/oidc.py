"""Login by OpenID Connect: authorization code with PKCE, state and nonce, by Authlib; roles out of the verified access token.

The access token must be a signed JWT, because that is what the gateway judges: the pages show what it will allow.
Authlib calls the provider through httpx2, unlike all other calls here.
"""

from typing import Any

import httpx2
import jwt
import structlog
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.starlette_client import OAuth
from fastapi import Request
from fastapi.responses import Response
from joserfc.errors import JoseError

from frontend.outbound import CONNECT_TIMEOUT_S
from frontend.sessions import Person
from frontend.settings import LoginSettings
from frontend.telemetry import SERVICE
from servicekit.problems import Problem

TIMEOUT_S = 10.0
ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
LEEWAY_S = 30
MAX_TOKEN_CHARS = 8192
"""What fits into cookies, with the rest of a session."""


class Untrusted(Exception):
    """What the provider said does not hold, for a reason of our own; the message is a fixed sentence."""


FAILURES = (Untrusted, AuthlibBaseError, JoseError, jwt.PyJWTError, httpx2.HTTPError, ValueError, KeyError, TypeError, RuntimeError)

log = structlog.get_logger(SERVICE)


class OidcLogin:
    """Sends people to the provider and takes them back.

    Args:
        settings: issuer, client and claims.
        site_url: this frontend's address in people's browsers.
        transport: a test's own.
    """

    def __init__(self, settings: LoginSettings, site_url: str, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self._settings = settings
        self._site_url = site_url.rstrip("/")
        secret = settings.oidc_client_secret.get_secret_value()
        self._provider: Any = OAuth().register(
            "oidc",
            client_id=settings.oidc_client_id,
            client_secret=secret or None,
            server_metadata_url=settings.oidc_issuer.rstrip("/") + "/.well-known/openid-configuration",
            client_kwargs={
                "scope": settings.oidc_scopes,
                "code_challenge_method": "S256",
                **({} if secret else {"token_endpoint_auth_method": "none"}),
                "follow_redirects": False,
                "trust_env": False,
                "timeout": httpx2.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
                **({"transport": transport} if transport else {}),
            },
        )

    async def redirect(self, request: Request) -> Response:
        """To the provider; state, nonce and the PKCE verifier wait in the session.

        Raises:
            Problem: 502, when the provider cannot be asked.
        """
        try:
            await self._metadata()
            response: Response = await self._provider.authorize_redirect(request, f"{self._site_url}/login/callback")
        except FAILURES as error:
            raise _refused("oidc_unavailable", error, 502) from error
        return response

    async def finish(self, request: Request) -> Person:
        """Who came back, out of tokens that hold.

        Raises:
            Problem: 403 `login_failed`; the log says at what.
        """
        try:
            await self._metadata()
            token = await self._provider.authorize_access_token(request)
            about, access = token["userinfo"], str(token["access_token"])
            claims = await self._access_claims(access)
            if claims["sub"] != about["sub"]:
                raise Untrusted("the two tokens name different subjects")
            return self._person(about, access, claims)
        except FAILURES as error:
            raise _refused("login_failed", error, 403) from error

    async def logout_url(self) -> str | None:
        """Where the provider ends its own session; None where it has no such page or cannot be asked."""
        try:
            metadata = await self._metadata()
        except FAILURES:
            return None
        url = metadata.get("end_session_endpoint")
        if not isinstance(url, str):
            return None
        back = {"client_id": self._settings.oidc_client_id, "post_logout_redirect_uri": f"{self._site_url}/login?signed_out=1"}
        return str(httpx2.URL(url).copy_merge_params(back))

    def _person(self, about: dict[str, Any], access: str, claims: dict[str, Any]) -> Person:
        roles = claims.get(self._settings.auth_roles_claim, [])
        if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
            raise Untrusted("the roles are no list of strings")
        if len(access) + sum(map(len, roles)) > MAX_TOKEN_CHARS:
            raise Untrusted("the access token is too large for a cookie")
        name = next((about[key] for key in ("name", "preferred_username", "email") if about.get(key)), claims["sub"])
        return Person(subject=str(claims["sub"]), name=str(name)[:80], roles=tuple(roles), token=access, expires=float(claims["exp"]))

    async def _metadata(self) -> dict[str, Any]:
        metadata: dict[str, Any] = await self._provider.load_server_metadata()
        if str(metadata.get("issuer")).rstrip("/") != self._settings.oidc_issuer.rstrip("/"):
            raise Untrusted("the provider names another issuer")
        offered = metadata.get("id_token_signing_alg_values_supported") or ["RS256"]
        # Never `none`, whatever the provider offers, and nothing with a shared secret.
        metadata["id_token_signing_alg_values_supported"] = [name for name in offered if name in ALGORITHMS]
        return metadata

    async def _access_claims(self, access: str) -> dict[str, Any]:
        header = jwt.get_unverified_header(access)
        key = await self._key(header.get("kid"))
        metadata = await self._metadata()
        claims: dict[str, Any] = jwt.decode(
            access,
            key,
            algorithms=list(ALGORITHMS),
            issuer=metadata["issuer"],
            audience=self._settings.auth_audience or None,
            leeway=LEEWAY_S,
            options={"require": ["exp", "sub"], "verify_aud": bool(self._settings.auth_audience)},
        )
        return claims

    async def _key(self, kid: str | None) -> Any:
        for force in (False, True):
            found = jwt.PyJWKSet.from_dict(await self._provider.fetch_jwk_set(force=force))
            for key in found.keys:
                if kid in (None, key.key_id):
                    return key
        raise Untrusted("the access token's key is not among the provider's")


def _refused(code: str, error: Exception, status: int) -> Problem:
    # Of other errors the class alone: a message may hold a token, or what the provider put into the address.
    reason = str(error) if isinstance(error, Untrusted) else type(error).__name__
    log.warning("login.refused", code=code, reason=reason)
    return Problem(status, code, "The login did not succeed. Try again; if it stays so, the log says at what it failed.")
