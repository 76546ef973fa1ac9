"""Everybody can use the pages: by keyboard alone, at 360 pixels, in the dark, with a screen reader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest

from tests.browser.conftest import Visit
from tests.browser.stack import Site
from tests.browser.visitor import PHONE, Visitor, ids
from tests.observe.stack import QUESTIONS, until

pytestmark = pytest.mark.browser

QUESTION = QUESTIONS[0]
MAX_TABS = 40
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def _signs_in(visitor: Visitor) -> None:
    visitor.goto("/login")


def _chats(visitor: Visitor) -> None:
    visitor.sign_in("engineer")
    visitor.ask(QUESTION)


def _looks_up(visitor: Visitor) -> None:
    visitor.sign_in("engineer", "/glossary")
    visitor.look_up("Eisenmangel")


def _inspects(visitor: Visitor) -> None:
    visitor.sign_in("engineer", "/inspector")
    visitor.inspect(QUESTION)
    visitor.page.locator("#why summary").first.click()


def _watches(visitor: Visitor) -> None:
    """With something to see: what the table of single fallbacks looks like is judged by the scripted incident, which has a trace store."""
    visitor.sign_in("engineer", "/console")
    visitor.page.wait_for_selector("rect.stack")
    visitor.page.click(".as-table summary")


def _is_refused(visitor: Visitor) -> None:
    visitor.sign_in("reader", "/inspector")


PAGES: dict[str, Callable[[Visitor], None]] = {
    "login": _signs_in,
    "chat": _chats,
    "glossary": _looks_up,
    "inspector": _inspects,
    "console": _watches,
    "refusal": _is_refused,
}


@pytest.fixture(scope="module", autouse=True)
def fallback(site: Site) -> None:
    """Something for the console to show: one search whose reranker was late."""
    site.services.faulty.mode = "late"
    try:
        assert site.services.search(deadline_ms=1900).json()["rerank"]["reason"] == "deadline"
    finally:
        site.services.faulty.mode = "passes"
    assert until(lambda: site.metrics.query("reranker_fallbacks_total"), 20) is not None


def tab_to(visitor: Visitor, selector: str) -> None:
    """Press Tab until this has the focus."""
    for _ in range(MAX_TABS):
        visitor.page.keyboard.press("Tab")
        if visitor.page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    pytest.fail(f"{selector} cannot be reached by Tab")


def test_signing_in_and_asking_by_keyboard_alone(visitor: Visitor) -> None:
    """The skip link is first, what has the focus is seen to have it, the answer is announced, the menu opens and closes."""
    visitor.goto("/login")
    tab_to(visitor, ".skip")
    tab_to(visitor, "#persona-reader")
    assert visitor.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    visitor.page.keyboard.press("Enter")
    visitor.page.wait_for_url(f"{visitor.site}/")
    tab_to(visitor, "#question")
    visitor.page.keyboard.type(QUESTION)
    visitor.page.keyboard.press("Enter")
    turn = visitor.turn("reranked")
    assert len(ids(turn)) == 10
    visitor.page.get_by_role("status").get_by_text("The order is sharpened").wait_for()
    assert visitor.page.evaluate("document.activeElement.id") == "question"
    visitor.page.keyboard.press("Shift+Tab")
    tab_to(visitor, "#question")
    visitor.goto("/")
    tab_to(visitor, "#menu summary")
    visitor.page.keyboard.press("Enter")
    tab_to(visitor, "#logout")
    visitor.page.keyboard.press("Escape")
    assert not visitor.page.locator("#logout").is_visible()
    assert visitor.page.evaluate("document.activeElement.matches('#menu summary')")


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wider_than_a_small_phone(visit: Visit, name: str) -> None:
    """At 360 pixels nobody has to scroll sideways."""
    visitor = visit(viewport=PHONE, has_touch=True)
    PAGES[name](visitor)
    visitor.picture(f"phone-{name}")
    assert visitor.width() <= PHONE["width"]


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious(visitor: Visitor, name: str) -> None:
    """Contrast, names, roles, structure; in the light and in the dark."""
    PAGES[name](visitor)
    for scheme in SCHEMES:
        visitor.page.emulate_media(color_scheme=scheme)
        visitor.picture(f"{scheme}-{name}")
        assert visitor.findings() == [], scheme


def test_dark_follows_the_system_until_somebody_chooses(visit: Visit) -> None:
    """And the choice is kept."""
    visitor = visit(color_scheme="dark")
    visitor.sign_in("reader")
    assert _brightness(visitor) < 0.2
    visitor.page.click("#menu summary")
    with visitor.page.expect_response("**/preferences"):
        visitor.page.click("#theme-form button[value=light]")
    assert _brightness(visitor) > 0.8
    visitor.goto("/glossary")
    assert _brightness(visitor) > 0.8


def _brightness(visitor: Visitor) -> float:
    """Of the page's ground, from black 0 to white 1."""
    colour = visitor.page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9.]+/g).slice(0, 3).map(Number)")
    return float(sum(colour)) / 3 / 255
