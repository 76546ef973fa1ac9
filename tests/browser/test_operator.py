"""The inspector and the console of fallbacks, as the platform engineer sees them."""

from __future__ import annotations

import time

import pytest

from tests.browser.stack import Site
from tests.browser.visitor import Visitor
from tests.observe.stack import QUESTIONS, until

pytestmark = pytest.mark.browser

QUESTION = QUESTIONS[0]
SEEN_S = 20.0


def test_the_inspector_shows_how_an_answer_came_about(visitor: Visitor) -> None:
    """What stands on the page is what stands in the receipt."""
    visitor.sign_in("engineer", "/inspector")
    answer = visitor.inspect(QUESTION, 20_000)
    receipt, page = answer["receipt"], visitor.page
    assert page.locator("#summary .badge").inner_text() == "reranked"
    stages = [one.get_attribute("data-stage") for one in page.locator("#waterfall tbody tr").all()]
    assert stages == [one["name"] for one in receipt["stages"]] == ["embed", "retrieve", "fuse", "rerank", "merge"]
    assert "the deadline" in page.locator("#waterfall .note").inner_text()
    assert page.locator("#legs tbody tr").count() == len(receipt["legs"]) >= 2
    sent, budget = receipt["budget"]["sent_chars"], receipt["budget"]["budget_chars"]
    assert 0 < sent <= budget
    assert page.locator("#budget meter").get_attribute("value") == str(sent)
    assert f"{sent:,} of {budget:,} characters" in page.locator("#budget").inner_text()
    assert page.locator("#head tbody tr").count() == len(receipt["head"])
    assert page.locator("#head .move").count() == sum(bool(one["moved"]) for one in receipt["head"]) > 0
    why = page.locator("#why li.why")
    assert [one.get_attribute("data-passage-id") for one in why.all()] == [one["id"] for one in answer["results"]]
    visitor.picture("inspector", 1060)
    why.first.locator("summary").click()
    assert "Close in meaning: cosine" in why.first.inner_text()
    why.first.scroll_into_view_if_needed()
    visitor.picture("inspector-why")


def test_the_console_counts_fallbacks_by_reason(visitor: Visitor, site: Site) -> None:
    """As many as there were, from Prometheus; without a trace store it says what to set."""
    visitor.sign_in("engineer", "/inspector")
    site.services.faulty.mode = "late"
    try:
        for _ in range(3):
            assert visitor.inspect(QUESTION, 1900)["rerank"]["reason"] == "deadline"
    finally:
        site.services.faulty.mode = "passes"
    counted = 'reranker_fallbacks_total{reranker_fallback_reason="deadline"}'
    assert until(lambda: site.metrics.query(counted), SEEN_S) is not None
    time.sleep(1)  # one more scrape
    visitor.goto("/console")
    assert visitor.page.locator("rect.stack[data-reason=deadline]").count() > 0
    legend = visitor.page.locator(".legend [data-reason=deadline]").inner_text()
    (sample,) = site.metrics.query(counted)
    assert legend == f"the reranker ran out of time {int(float(sample['value'][1]))}"
    visitor.page.click(".as-table summary")
    assert visitor.page.locator("#over-time-table").is_visible()
    assert visitor.page.get_by_text("Set TRACES_URL to see single fallbacks.").is_visible()
