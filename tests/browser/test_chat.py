"""The chat: the base order first, then the sharper one in its place, and a badge that says how it came about."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.conftest import Visit
from tests.browser.stack import Site
from tests.browser.visitor import Visitor, ids
from tests.observe.stack import QUESTIONS

pytestmark = pytest.mark.browser

QUESTION = QUESTIONS[0]
SHARPENED = "Weiße Flecken auf den Blättern"
"""One whose best passage the reranker finds far down in the base order."""


def asked(site: Site, query: str, **body: Any) -> list[str]:
    """The gateway's own answer to a question, as the chat asks it."""
    return [one["id"] for one in site.services.search(query=query, top_k=10, **body).json()["results"]]


def test_the_base_order_comes_first_then_the_sharper_one(visitor: Visitor, site: Site) -> None:
    """Both are the gateway's, passages stay the same elements, and those that moved say from where."""
    site.services.faulty.mode = "slow"
    visitor.sign_in("reader")
    turn = visitor.ask(SHARPENED, "pending")
    assert turn.locator(".passages[data-order=hybrid]").count() == 1
    first = ids(turn)
    turn.locator("li.passage").first.evaluate("element => { element.dataset.seen = 'before'; }")
    assert turn.locator(".badge").get_attribute("data-status") == "pending"
    assert turn.locator(".move").count() == 0
    visitor.picture("chat-first")
    visitor.turn("reranked")
    assert turn.locator(".passages[data-order=final]").count() == 1
    assert turn.locator(".badge").inner_text() == "reranked"
    last = ids(turn)
    assert (first, last) == (asked(site, SHARPENED, rerank=False), asked(site, SHARPENED))
    assert first[0] != last[0]
    assert turn.locator("[data-seen=before]").get_attribute("data-passage-id") == first[0]
    for item in turn.locator("li.passage").all():
        moved = item.get_attribute("data-rank") != item.get_attribute("data-hybrid-rank")
        assert item.locator(".move").count() == int(moved)
    visitor.picture("chat")


def test_a_partly_reranked_answer_says_how_much(visitor: Visitor, site: Site) -> None:
    """Half of the passages were scored in time."""
    site.services.faulty.mode = "partial"
    visitor.sign_in("reader")
    badge = visitor.ask(QUESTION, "partly").locator(".badge")
    rerank = site.services.search(query=QUESTION, top_k=10).json()["rerank"]
    assert rerank["scored"] == rerank["candidates"] // 2 > 0
    assert badge.inner_text() == f"partly reranked: {rerank['scored']} of {rerank['candidates']}"
    assert badge.get_attribute("data-reason") == "deadline"


def test_the_reranker_is_killed_while_the_page_is_open_and_comes_back(visitor: Visitor, site: Site) -> None:
    """The badge says why, the order is the one without reranking, and afterwards all is as before."""
    visitor.sign_in("reader")
    visitor.ask(QUESTION, "reranked")
    site.kill_reranker()
    try:
        turn = visitor.ask(QUESTION, "fallback")
        assert turn.locator(".badge").get_attribute("data-reason") == "transport"
        assert turn.locator(".badge").inner_text() == "base order: the reranker cannot be reached"
        assert ids(turn) == asked(site, QUESTION, rerank=False)
        assert turn.locator(".move").count() == 0
        visitor.picture("chat-fallback")
    finally:
        site.bring_reranker()
    assert ids(visitor.ask(QUESTION, "reranked")) == asked(site, QUESTION)


def test_a_question_with_markup_is_text(visitor: Visitor) -> None:
    """It is shown as it was typed, in the page and after a reload, and runs nothing."""
    question = """<img src=x onerror="window.ran=1"><script>window.ran=2</script> gelbe Blätter"""
    visitor.sign_in("reader")
    assert visitor.ask(question).locator(".question").inner_text() == question
    visitor.goto("/")
    assert visitor.page.locator(".turn .question").inner_text() == question
    assert visitor.page.locator("main img, main script").count() == 0
    assert visitor.page.evaluate("window.ran") is None


def test_umlauts_and_the_german_page(visit: Visit) -> None:
    """A browser in German gets German words; umlauts are found, and marked where they stand."""
    visitor = visit(locale="de-DE")
    visitor.sign_in("reader")
    assert visitor.page.locator("html").get_attribute("lang") == "de"
    assert visitor.page.locator("h1").inner_text() == "Was möchten Sie wissen?"
    turn = visitor.ask("Warum werden ältere Blätter gelb? Überdüngung?")
    assert turn.locator(".question").inner_text() == "Warum werden ältere Blätter gelb? Überdüngung?"
    assert {"ältere", "Blätter"} & set(turn.locator("mark").all_inner_texts())
    assert turn.locator(".badge").inner_text() == "neu geordnet"
    visitor.picture("chat-german")


def test_a_diagnosis_has_eight_passages_and_a_chat_ten(visitor: Visitor) -> None:
    """The callers' own defaults."""
    visitor.sign_in("reader")
    assert len(ids(visitor.ask(QUESTION))) == 10
    visitor.page.click("#view-diagnosis")
    with visitor.page.expect_request("**/api/search/stream") as sent:
        assert len(ids(visitor.ask(QUESTION))) == 8
    assert sent.value.post_data_json == {"query": QUESTION, "view": "diagnosis"}
