"""The authorization code flow against a small issuer that insists on PKCE, and everything that must not get through it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from services.frontend.tests.fakes import CLIENT_SECRET, GATEWAY, ISSUER, NOW, SESSION_SECRET, FakeIssuer
from services.frontend.tests.serving import Browser, browsing

SITE = "https://frontend.test"
SETTINGS = {
    "knowledge_env": "production",
    "gateway_url": f"http://{GATEWAY}",
    "frontend_url": SITE,
    "frontend_session_secret": SESSION_SECRET,
    "oidc_issuer": f"https://{ISSUER}",
    "oidc_client_id": "frontend",
    "oidc_client_secret": CLIENT_SECRET,
    "auth_audience": "knowledge",
}
Change = Callable[[FakeIssuer], Any]


@asynccontextmanager
async def with_issuer(**given: Any) -> AsyncIterator[tuple[Browser, FakeIssuer]]:
    """A browser before a frontend in production."""
    issuer = FakeIssuer()
    async with browsing(issuer=issuer, base_url=SITE, **{**SETTINGS, **given}) as browser:
        yield browser, issuer


async def come_back(browser: Browser, issuer: FakeIssuer, **changed: str) -> httpx.Response:
    """To the provider and back, with what the provider's page adds to the address, or with something else."""
    location = (await browser.http.get("/login/oidc?next=/glossary")).headers["location"]
    return await browser.http.get("/login/callback", params={**issuer.authorize(location), **changed})


async def test_the_way_in() -> None:
    """Code, PKCE, state and nonce go out; the access token goes to the gateway, and the page knows name and roles."""
    async with with_issuer() as (browser, issuer):
        issuer.access_claims = {"roles": ["reader", "knowledge-operator"]}
        response = await come_back(browser, issuer)
        assert (response.status_code, response.headers["location"]) == (303, "/glossary")
        asked = issuer.asked
        assert (asked["response_type"], asked["client_id"], asked["redirect_uri"]) == ("code", "frontend", f"{SITE}/login/callback")
        assert (asked["code_challenge_method"], asked["scope"]) == ("S256", "openid profile")
        assert len(asked["state"]) >= 20
        assert len(asked["nonce"]) >= 20
        page = (await browser.open("/inspector")).text
        assert 'id="person">Ada<' in page
        assert 'id="inspector"' in page
        assert (await browser.post("/api/search", query="x")).status_code == 200
        bearer = browser.outside.last(GATEWAY).headers["Authorization"].removeprefix("Bearer ")
    assert jwt.decode(bearer, issuer.key.public_key(), ["RS256"], audience="knowledge")["roles"] == ["reader", "knowledge-operator"]
    assert CLIENT_SECRET not in page


async def test_a_session_lasts_as_long_as_the_access_token() -> None:
    """And not longer."""
    async with with_issuer() as (browser, issuer):
        issuer.access_claims = {"exp": 4_000_000_000}
        await come_back(browser, issuer)
        assert (await browser.open("/")).status_code == 200
        browser.clock.now = 4_000_000_000
        assert (await browser.open("/")).status_code == 303


FAR = {"exp": 4_000_000_000, "iat": NOW, "sub": "ada", "iss": f"https://{ISSUER}"}


def stranger() -> rsa.RSAPrivateKey:
    """A key that is not the issuer's."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda issuer: issuer.id_claims.update(nonce="another"), id="nonce"),
        pytest.param(lambda issuer: issuer.id_claims.update(aud="another"), id="identity for another client"),
        pytest.param(lambda issuer: issuer.id_claims.update(iss="https://evil.example"), id="another issuer"),
        pytest.param(lambda issuer: issuer.id_claims.update(exp=NOW), id="identity expired"),
        pytest.param(lambda issuer: issuer.id_claims.update(sub="eve"), id="two subjects"),
        pytest.param(
            lambda issuer: setattr(issuer, "id_token", jwt.encode({**FAR, "aud": "frontend"}, None, algorithm="none")), id="unsigned"
        ),
        pytest.param(
            lambda issuer: setattr(issuer, "id_token", issuer.sign({**FAR, "aud": "frontend"}, key=stranger())), id="another's signature"
        ),
        pytest.param(lambda issuer: setattr(issuer, "access_token", "opaque"), id="opaque access token"),
        pytest.param(
            lambda issuer: setattr(issuer, "access_token", issuer.sign({**FAR, "aud": "knowledge"}, key=stranger())), id="access by another"
        ),
        pytest.param(lambda issuer: issuer.access_claims.update(aud="another"), id="access for another service"),
        pytest.param(lambda issuer: issuer.access_claims.update(exp=NOW - 3600), id="access expired"),
        pytest.param(lambda issuer: issuer.access_claims.update(roles="reader"), id="roles no list"),
        pytest.param(lambda issuer: issuer.access_claims.update(noise="".join(map(str, range(4000)))), id="too large"),
    ],
)
async def test_tokens_that_do_not_hold_let_nobody_in(change: Change) -> None:
    """403 with a page that tells nothing of why, and no session."""
    async with with_issuer() as (browser, issuer):
        change(issuer)
        response = await come_back(browser, issuer)
        assert (response.status_code, response.json()["code"]) == (403, "login_failed")
        assert (await browser.open("/")).status_code == 303


@pytest.mark.parametrize("changed", [{"state": "another"}, {"code": "another"}, {"error": "access_denied"}])
async def test_a_callback_that_was_not_asked_for_lets_nobody_in(changed: dict[str, str]) -> None:
    """Another state, another code, the provider's refusal."""
    async with with_issuer() as (browser, issuer):
        assert (await come_back(browser, issuer, **changed)).status_code == 403
        assert (await browser.open("/")).status_code == 303


async def test_a_callback_works_once_and_in_its_own_browser() -> None:
    """The state waits in the session of the browser that went out, and is used up."""
    async with with_issuer() as (browser, issuer):
        location = (await browser.http.get("/login/oidc")).headers["location"]
        back = issuer.authorize(location)
        session = dict(browser.http.cookies)
        browser.http.cookies.clear()
        assert (await browser.http.get("/login/callback", params=back)).status_code == 403
        browser.http.cookies.clear()
        browser.http.cookies.update(session)
        assert (await browser.http.get("/login/callback", params=back)).status_code == 303
        assert (await browser.http.get("/login/callback", params=back)).status_code == 403


@pytest.mark.parametrize("answer", [httpx2.ConnectError("refused"), httpx2.Response(500), httpx2.Response(200, text="no JSON")])
async def test_a_provider_that_does_not_answer(answer: Any) -> None:
    """502 as a page for the person who wanted in."""
    async with with_issuer() as (browser, issuer):
        issuer.failure = answer
        response = await browser.open("/login/oidc")
        assert response.status_code == 502
        assert "The identity provider cannot be reached." in response.text


async def test_a_provider_that_calls_itself_otherwise_is_not_believed() -> None:
    """What is discovered must be who was meant."""
    async with with_issuer() as (browser, issuer):
        issuer.metadata["issuer"] = "https://evil.example"
        assert (await browser.http.get("/login/oidc")).status_code == 502


async def test_logging_out_leads_to_the_providers_own_page() -> None:
    """And from there back; without such a page to the login."""
    async with with_issuer() as (browser, issuer):
        await come_back(browser, issuer)
        page = await browser.open("/")
        assert f"form-action 'self' https://{ISSUER}" in page.headers["Content-Security-Policy"]
        location = urlsplit((await browser.submit("/logout")).headers["location"])
        assert (location.netloc, location.path) == (ISSUER, "/logout")
        assert parse_qs(location.query)["post_logout_redirect_uri"] == [f"{SITE}/login?signed_out=1"]
        assert (await browser.open("/")).status_code == 303
