"""Keys that never meet, and caches that stay as small as they were made."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkit import Tokens
from reranker.cache import CachedScore, PairKeys, Passage, PassageCache, score_cache
from servicekit.hygiene import clean_text

TEXTS = st.text(st.characters(), max_size=8)
MODEL = ("model", "revision", "int8")


def _passage(tokens: int = 4, value: float = 1.0) -> Passage:
    ids = np.zeros(tokens, np.int64)
    return Passage(Tokens(ids, ids, ids == 0, truncated=False), np.full((tokens, 8), value, np.float16))


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_two_pairs_share_a_key_only_if_they_are_the_same(query: str, document: str, other_query: str, other: str) -> None:
    """After cleaning: what is taken out of a text is not scored either."""
    same = [clean_text(each) for each in (query, document)] == [clean_text(each) for each in (other_query, other)]
    assert (PairKeys(MODEL, query).key(document) == PairKeys(MODEL, other_query).key(other)) is same


@pytest.mark.parametrize("fields", [("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc"), ("a", "\ud800")])
def test_the_border_between_query_and_document_counts(fields: tuple[str, str]) -> None:
    """The fields are length-prefixed, not only put together."""
    query, document = fields
    assert PairKeys(MODEL, query).key(document) != PairKeys(MODEL, query + "x").key(document)
    assert PairKeys(MODEL, "a").key("b") != PairKeys(MODEL, query).key(document)


@pytest.mark.parametrize("other", [("model", "revision", "fp32"), ("model", "newer", "int8"), ("modelrevision", "", "int8")])
def test_another_model_has_other_keys(other: tuple[str, ...]) -> None:
    """Id, revision and precision all count."""
    assert PairKeys(MODEL, "q").key("d") != PairKeys(other, "q").key("d")


def test_a_cache_of_scores_is_bounded() -> None:
    """The one used longest ago goes."""
    cache = score_cache(3)
    for number in range(10):
        cache[bytes([number])] = CachedScore(float(number), 1, truncated=False)
    assert sorted(cache) == [b"\x07", b"\x08", b"\x09"]


def test_a_cache_of_passages_is_bounded_in_bytes() -> None:
    """By what the arrays take; each look-up is told."""
    looked_up: list[bool] = []
    cache = PassageCache(3 * _passage().bytes, looked_up.append)
    for number in range(5):
        cache.put(f"passage {number}", _passage(value=number))
    found = [cache.get(f"passage {number}") for number in range(5)]
    assert [each is not None for each in found] == looked_up == [False, False, True, True, True]
    assert found[4] is not None
    assert found[4].vectors[0, 0] == 4


@pytest.mark.parametrize("room", [0, 100])
def test_a_passage_that_does_not_fit_is_not_kept(room: int) -> None:
    """And breaks nothing."""
    cache = PassageCache(room)
    cache.put("passage", _passage(tokens=500))
    assert cache.get("passage") is None
