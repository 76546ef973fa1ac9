"""The glossary: five passages, one definition on top, and weak matches hidden only by scores that mean something."""

from __future__ import annotations

import pytest

from tests.browser.stack import CROSS_ENCODER, Site
from tests.browser.visitor import Visitor, ids

pytestmark = pytest.mark.browser

TERM = "Eisenmangel"


def shown(visitor: Visitor) -> list[str]:
    """The definition, then the others."""
    first = visitor.page.locator("#definition").get_attribute("data-passage-id")
    return [str(first), *ids(visitor.page.locator("#others"))]


def test_one_definition_on_top_of_five_passages(visitor: Visitor, site: Site) -> None:
    """They are the gateway's five, and scores of no fixed scale hide none of them."""
    visitor.sign_in("reader", "/glossary")
    visitor.look_up(TERM)
    answer = site.services.search(query=TERM, top_k=5).json()["results"]
    assert sorted(shown(visitor)) == sorted(one["id"] for one in answer)
    assert len(answer) == 5
    assert visitor.page.locator("#definition h2").inner_text().startswith(TERM)
    assert visitor.page.locator("#definition .eyebrow").inner_text().lower() == "exact match"
    assert "do not say how good each one is" in visitor.page.locator("#threshold").inner_text()
    visitor.picture("glossary")


def test_an_identifier_is_exact(visitor: Visitor) -> None:
    """`POL-55012` and not the number beside it."""
    visitor.sign_in("adjuster", "/glossary")
    visitor.look_up("POL-55012")
    assert "names POL-55012" in visitor.page.locator("#definition .chip.exact").all_inner_texts()


def test_probabilities_hide_weak_matches_until_they_are_asked_for(visitor: Visitor, site: Site) -> None:
    """With a cross-encoder; and when it is gone nothing is hidden."""
    visitor.sign_in("adjuster", "/glossary")
    was = site.services.reranker
    other = site.bring_reranker(RERANK_MODEL=CROSS_ENCODER)
    try:
        visitor.look_up("excess after a burst pipe")
        hidden = 5 - len(shown(visitor))
        assert hidden > 0
        assert f"{hidden} weak match" in visitor.page.locator("#threshold").inner_text()
        visitor.picture("glossary-threshold")
        visitor.page.click("#show-weak")
        assert len(shown(visitor)) == 5
        site.services.faulty.go()
        visitor.look_up("the same without a reranker", "fallback")
        assert len(shown(visitor)) == 5
        assert "without reranking there is no score" in visitor.page.locator("#threshold").inner_text()
    finally:
        site.services.faulty.target, site.services.reranker = was.url, was
        site.services.faulty.come()
        other.stop()
