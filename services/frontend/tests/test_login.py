"""Coming in as a persona, staying for as long as the token holds, going out."""

import jwt
import pytest

from frontend.login import safe_path
from services.frontend.tests.fakes import GATEWAY, NOW, PERSONA_SECRET, SESSION_SECRET
from services.frontend.tests.serving import browsing

PRODUCTION = {
    "knowledge_env": "production",
    "gateway_url": f"http://{GATEWAY}",
    "frontend_url": "https://frontend.test",
    "frontend_session_secret": SESSION_SECRET,
    "oidc_issuer": "https://issuer.test",
    "oidc_client_id": "frontend",
}


@pytest.mark.parametrize(
    ("persona", "roles"),
    [
        ("reader", ["reader"]),
        ("adjuster", ["adjuster"]),
        ("underwriter", ["underwriter"]),
        ("engineer", ["reader", "adjuster", "underwriter", "companion", "knowledge-writer", "knowledge-operator"]),
        ("nobody", []),
    ],
)
async def test_a_persona_has_a_short_lived_token_that_the_gateway_takes(persona: str, roles: list[str]) -> None:
    """Subject, tenant, roles and expiry as the gateway requires them; audience and issuer where they are set."""
    async with browsing(auth_audience="knowledge", auth_issuer="here") as browser:
        response = await browser.log_in(persona)
        assert (response.status_code, response.headers["location"]) == (303, "/")
        await browser.post("/api/search", query="x")
        bearer = browser.outside.last(GATEWAY).headers["Authorization"].removeprefix("Bearer ")
    claims = jwt.decode(
        bearer, PERSONA_SECRET, ["HS256"], audience="knowledge", issuer="here", options={"verify_exp": False, "verify_iat": False}
    )
    expected = {"sub": f"persona-{persona}", "tenant": "default", "roles": roles, "exp": NOW + 3600}
    assert claims == {**claims, **expected}


async def test_pages_want_a_login_and_come_back_to_where_one_was_going() -> None:
    """With the query, and nowhere else than to a page of this site."""
    async with browsing() as browser:
        response = await browser.open("/?view=diagnosis")
        assert (response.status_code, response.headers["location"]) == (303, "/login?next=/%3Fview%3Ddiagnosis")
        await browser.open("/login")
        back = await browser.submit("/login/persona", persona="reader", next="/?view=diagnosis")
        assert back.headers["location"] == "/?view=diagnosis"
        assert (await browser.open("/login?next=//evil.example")).headers["location"] == "/"


@pytest.mark.parametrize("path", [None, "", "//evil.example", "/\\evil.example", "https://evil.example", "/a\nb", "/" + "a" * 300])
def test_a_path_that_leads_away_is_not_followed(path: str | None) -> None:
    """The first page instead."""
    assert safe_path(path) == "/"


@pytest.mark.parametrize("path", ["/login/persona", "/logout", "/preferences"])
async def test_a_form_without_its_token_is_refused(path: str) -> None:
    """As is one with another session's."""
    async with browsing() as browser:
        for token in ("", "another"):
            await browser.open("/login")
            browser.csrf = token
            response = await browser.submit(path, persona="reader", language="de")
            assert (response.status_code, response.json()["code"]) == (403, "csrf")
        assert (await browser.open("/")).status_code == 303


async def test_the_csrf_token_changes_with_the_login() -> None:
    """A token from before is worth nothing after."""
    async with browsing() as browser:
        await browser.open("/login")
        before = browser.csrf
        await browser.log_in()
        assert browser.csrf != before
        browser.csrf = before
        assert (await browser.post("/api/search", query="x")).status_code == 403


async def test_a_session_ends_with_its_token() -> None:
    """Pages lead to the login, calls say so."""
    async with browsing() as browser:
        await browser.log_in()
        assert (await browser.open("/")).status_code == 200
        browser.clock.now += 3601
        assert (await browser.open("/")).status_code == 303
        response = await browser.post("/api/search", query="x")
        assert (response.status_code, response.json()["code"]) == (401, "session_over")


async def test_a_session_ends_after_its_hours_too() -> None:
    """However long the token holds."""
    async with browsing(frontend_session_hours=0.5) as browser:
        await browser.log_in()
        browser.clock.now += 1801
        assert (await browser.open("/")).status_code == 303


async def test_logging_out() -> None:
    """The cookie is gone, and the page says so."""
    async with browsing() as browser:
        await browser.log_in()
        response = await browser.submit("/logout")
        assert response.headers["location"] == "/login?signed_out=1"
        assert not [name for name in browser.http.cookies if "session" in name]
        assert "You are signed out." in (await browser.open("/login?signed_out=1")).text
        assert (await browser.open("/")).status_code == 303


async def test_an_unknown_persona_is_refused() -> None:
    """422, and nobody is logged in."""
    async with browsing() as browser:
        await browser.open("/login")
        assert (await browser.submit("/login/persona", persona="root")).status_code == 422
        assert (await browser.open("/")).status_code == 303


async def test_personas_are_refused_in_production() -> None:
    """The page offers none, and asking for one all the same is refused."""
    async with browsing(base_url="https://frontend.test", **PRODUCTION) as browser:
        page = await browser.open("/login")
        assert "persona" not in page.text.split("</head>")[1]
        assert "/login/oidc" in page.text
        response = await browser.submit("/login/persona", persona="engineer")
        assert (response.status_code, response.json()["code"]) == (403, "personas_refused")
        assert "max-age" in page.headers["Strict-Transport-Security"]
        assert all("; Secure" in cookie for cookie in page.headers.get_list("set-cookie"))


async def test_without_a_provider_there_is_no_such_login() -> None:
    """404 for both steps."""
    async with browsing() as browser:
        for path in ("/login/oidc", "/login/callback"):
            assert (await browser.http.get(path)).status_code == 404
