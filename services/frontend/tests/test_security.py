"""Headers on every answer, and pages that need no exception from them."""

import re

import pytest

from frontend.security import content_security_policy
from services.frontend.tests.serving import browsing

PATHS = [
    "/",
    "/login",
    "/glossary",
    "/inspector",
    "/console",
    "/static/js/chat.js",
    "/static/css/base.css",
    "/api/console",
    "/nothing",
    "/health",
]


@pytest.mark.parametrize("path", PATHS)
async def test_every_answer_carries_the_headers(path: str) -> None:
    """Pages, scripts, refusals and probes alike."""
    async with browsing() as browser:
        headers = (await browser.open(path)).headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == ("no-cache" if path.startswith("/static/") else "no-store")
    assert "Strict-Transport-Security" not in headers


async def test_a_body_that_is_too_large_is_refused_with_the_headers_too() -> None:
    """Before it is read."""
    async with browsing() as browser:
        await browser.log_in()
        response = await browser.post("/api/search", query="x" * 100_000)
    assert response.status_code == 413
    assert "Content-Security-Policy" in response.headers


def test_only_the_provider_may_follow_a_form() -> None:
    """Logging out leads there."""
    assert "form-action 'self';" in content_security_policy()
    assert "form-action 'self' https://issuer.example;" in content_security_policy("https://issuer.example")


@pytest.mark.parametrize("persona", ["engineer", "reader"])
async def test_pages_hold_nothing_inline_and_nothing_from_elsewhere(persona: str) -> None:
    """No script, style or handler in the page, and no address of another host: with the policy they would not work."""
    async with browsing() as browser:
        await browser.log_in(persona)
        pages = [(await browser.open(path)).text for path in ("/", "/?view=diagnosis", "/glossary", "/inspector", "/console", "/nothing")]
    for page in pages:
        scripts = re.findall(r"<script([^>]*)>", page)
        assert scripts
        assert all("src=" in script or 'type="application/json"' in script for script in scripts)
        markup = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
        assert not re.search(r"\s(style|on\w+)=|<style", markup)
        assert not re.search(r"(?:src|href|action)=\"(?!/|#)", markup)
