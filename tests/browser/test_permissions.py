"""People see what their roles allow, for as long as they are signed in, and nothing can be done in their name."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Visit
from tests.browser.visitor import Visitor, ids
from tests.observe.stack import QUESTIONS

pytestmark = pytest.mark.browser

RISK = "POL-55012 risk note, loss ratio"


def test_somebody_without_roles_sees_nothing(visitor: Visitor) -> None:
    """And is told why."""
    visitor.sign_in("nobody")
    turn = visitor.ask(QUESTIONS[0], "skipped")
    assert ids(turn) == []
    assert turn.locator("[data-degraded=no_permissions]").inner_text() == "You have no roles, so there is nothing that you may see."
    visitor.picture("chat-nobody")


def test_an_adjuster_sees_no_risk_notes(visit: Visit) -> None:
    """The underwriter does, for the same question."""
    titles = {}
    for persona in ("adjuster", "underwriter"):
        visitor = visit()
        visitor.sign_in(persona)
        titles[persona] = visitor.ask(RISK).locator("h3").all_inner_texts()
    assert "POL-55012: risk note" in titles["underwriter"]
    assert titles["adjuster"]
    assert not any("risk note" in title.lower() for title in titles["adjuster"])


@pytest.mark.parametrize("path", ["/inspector", "/console"])
def test_receipts_and_fallbacks_are_for_operators(visitor: Visitor, path: str) -> None:
    """To others the page says so, and the server refuses the data."""
    visitor.sign_in("reader", path)
    assert visitor.page.locator("#operators-only").is_visible()
    assert visitor.page.locator(f"#nav{path.replace('/', '-')}").count() == 0
    assert visitor.context.request.get(f"{visitor.site}/api/console").status == 403
    body = {"query": QUESTIONS[0], "view": "inspector", "explain": True}
    answer = visitor.context.request.post(f"{visitor.site}/api/search", data=body, headers={"X-CSRF-Token": csrf(visitor)})
    assert answer.status == 200
    assert "receipt" not in answer.json()


def test_signing_out_ends_the_session(visitor: Visitor) -> None:
    """Pages lead to the login, the API refuses, and what was asked is forgotten."""
    visitor.sign_in("reader")
    visitor.ask(QUESTIONS[0])
    visitor.page.click("#menu summary")
    visitor.page.click("#logout")
    visitor.page.wait_for_url("**/login?signed_out=1")
    assert visitor.page.get_by_text("You are signed out.").is_visible()
    assert visitor.page.evaluate("sessionStorage.length") == 0
    visitor.goto("/")
    assert visitor.page.url == f"{visitor.site}/login?next=/"
    assert visitor.context.request.get(f"{visitor.site}/api/console").status == 401
    visitor.sign_in("reader")
    assert visitor.page.locator(".turn").count() == 0


def test_the_token_of_another_session_is_refused(visit: Visit) -> None:
    """And so is none, in the API and in the form that signs out."""
    mine, other = visit(), visit()
    mine.sign_in("reader")
    other.sign_in("adjuster")
    for headers in ({"X-CSRF-Token": csrf(other)}, {}):
        for path, body in (("/api/search", {"query": "x"}), ("/api/search/stream", {"query": "x"}), ("/logout", None)):
            answer = mine.context.request.post(mine.site + path, data=body, headers=headers, max_redirects=0)
            assert answer.status == 403, (path, headers)
    mine.ask(QUESTIONS[0])


def test_a_page_from_before_a_new_login_says_that_it_is_old(visitor: Visitor) -> None:
    """Its token is no longer the session's."""
    visitor.sign_in("reader")
    again = visitor.context.new_page()
    again.goto(f"{visitor.site}/")
    again.click("#menu summary")
    again.click("#logout")
    again.click("#persona-adjuster")
    again.wait_for_url(f"{visitor.site}/")
    turn = visitor.ask(QUESTIONS[0], "error")
    assert turn.locator("[data-code=csrf]").inner_text() == "This page is out of date. Load it again and repeat what you did."
    # The browser itself reports a refused request.
    assert [said for said in visitor.complaints if "status of 403" not in said] == []
    visitor.complaints.clear()


def csrf(visitor: Visitor) -> str:
    """The token in the page that is open."""
    return str(visitor.page.locator("meta[name=csrf-token]").get_attribute("content"))
