"""The shells of the pages: what they hold, for whom."""

import jwt
import pytest

from services.frontend.tests.fakes import ANSWER_KEY, GATEWAY, PERSONA_SECRET, SESSION_SECRET, FakeIssuer
from services.frontend.tests.serving import browsing
from services.frontend.tests.test_oidc import SETTINGS as PRODUCTION
from services.frontend.tests.test_oidc import SITE, come_back


@pytest.mark.parametrize(
    ("path", "view", "top_k"),
    [("/", "chat", 10), ("/?view=diagnosis", "diagnosis", 8), ("/?view=evil", "chat", 10), ("/glossary", "glossary", 5)],
)
async def test_each_page_knows_its_view_and_its_number(path: str, view: str, top_k: int) -> None:
    """For the script."""
    async with browsing() as browser:
        await browser.log_in()
        page = (await browser.open(path)).text
    assert f'data-view="{view}" data-top-k="{top_k}"' in page


@pytest.mark.parametrize("path", ["/inspector", "/console"])
async def test_operators_pages_say_so_to_others(path: str) -> None:
    """Without their scripts, and no tab leads there."""
    async with browsing() as browser:
        await browser.log_in("reader")
        page = (await browser.open(path)).text
        assert "For platform engineers" in page
        assert f"/static/js{path}.js" not in page
        assert f'href="{path}"' not in page
        await browser.log_in("engineer")
        assert (await browser.submit("/logout")).status_code == 303
        await browser.log_in("engineer")
        page = (await browser.open(path)).text
    assert f"/static/js{path}.js" in page
    assert f'href="{path}" id="nav-{path[1:]}" aria-current="page"' in page


async def test_no_page_holds_a_secret_or_the_token() -> None:
    """Nor does a cookie, besides what is encrypted."""
    async with browsing(answer_url="http://writer.test", answer_model="m", answer_api_key=ANSWER_KEY) as browser:
        await browser.log_in("engineer")
        seen = [(await browser.open(path)).text for path in ("/", "/glossary", "/inspector", "/console")]
        seen += list(browser.http.cookies.values())
        await browser.post("/api/search", query="x")
        token = browser.outside.last(GATEWAY).headers["Authorization"].removeprefix("Bearer ")
    assert jwt.decode(token, options={"verify_signature": False})["sub"] == "persona-engineer"
    for secret in (PERSONA_SECRET, SESSION_SECRET, ANSWER_KEY, token, token.split(".")[2]):
        assert not any(secret in text for text in seen)


async def test_a_name_with_markup_in_it_is_text() -> None:
    """Also where it goes into an attribute or a script's data."""
    issuer = FakeIssuer()
    async with browsing(issuer=issuer, base_url=SITE, **PRODUCTION) as browser:
        issuer.id_claims = {"name": '"><script>alert(1)</script>'}
        await come_back(browser, issuer)
        page = (await browser.open("/")).text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


async def test_a_page_that_is_not_there() -> None:
    """A page for a person, a problem for a script."""
    async with browsing() as browser:
        page = await browser.open("/nothing")
        assert (page.status_code, page.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
        assert "There is no such page." in page.text
        other = await browser.http.get("/api/nothing", headers={"Accept": "text/html"})
        assert (other.status_code, other.headers["Content-Type"]) == (404, "application/problem+json")


async def test_probes_and_metrics() -> None:
    """The pages are there whatever the gateway does; nothing of a query is in the metrics."""
    async with browsing() as browser:
        await browser.log_in()
        await browser.http.get("/nothing?q=geheim")
        assert (await browser.http.get("/health")).json() == {"status": "ok"}
        assert (await browser.http.get("/ready")).json() == {"status": "ready", "personas": True, "oidc": False}
        metrics = (await browser.http.get("/metrics")).text
    assert "http_server_request_duration_seconds" in metrics
    assert "geheim" not in metrics
    assert GATEWAY not in browser.outside.seen
