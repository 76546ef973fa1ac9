"""The identifier lane: what is a strong identifier, what a soft one, and how tiers are made."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge.identifiers import MAX_IDENTIFIER, MAX_PER_QUERY, extract, query_identifiers, tiers


@pytest.mark.parametrize(
    ("text", "strong"),
    [
        ("Police POL-55012 prüfen", ("pol-55012",)),
        ("POL-55012 und POL-55021", ("pol-55012", "pol-55021")),
        ("Vertrag 2024/118", ("2024/118",)),
        ("Artikel 00123", ("00123",)),
        ("Dünger 7-3-6", ("7-3-6",)),
        ("Version 2.19.1", ("2.19.1",)),
        ("Typ ZS-204.", ("zs-204",)),
        ("Bestellnummer 4711", ("4711",)),
        ("(X9)", ("x9",)),
    ],
)
def test_codes_are_strong(text: str, strong: tuple[str, ...]) -> None:
    """Letters with digits, hyphen or slash codes and numbers of four and more digits name one thing."""
    assert extract(text).strong == strong


@pytest.mark.parametrize(
    ("text", "soft"),
    [
        ("der pH des Bodens", ("ph",)),
        ("EC messen", ("ec",)),
        ("Mangel an N", ("n",)),
        ("bei 6.2 liegt", ("6.2",)),
        ("bei 6,2 liegt", ("6.2",)),
        ("EC-Wert", ("ec",)),
        ("500ml geben", ("500ml",)),
        ("NPK", ("npk",)),
    ],
)
def test_short_terms_and_decimals_are_soft(text: str, soft: tuple[str, ...]) -> None:
    """They carry meaning without naming one thing, so they never form a tier."""
    found = extract(text)
    assert found.soft == soft
    assert found.strong == ()


@pytest.mark.parametrize(
    "text",
    ["", "Wasser", "Die unteren Blätter werden gelb", "3-fach", "18-24 Grad", "123", "24-stündig", "und/oder", "...", "m²", "CO₂-arm"],
)
def test_words_and_short_numbers_are_no_identifiers(text: str) -> None:
    """Words, ranges and short numbers stand for nothing by themselves."""
    assert extract(text).all == ()


def test_leading_zeros_count() -> None:
    """`00123` is not `123`, nor `123` in any other spelling."""
    assert "123" not in extract("00123").all
    assert extract("00123").strong != extract("000123").strong


def test_case_does_not_count() -> None:
    """An identifier is the same in capitals and in small letters."""
    assert extract("pol-55012").strong == extract("POL-55012").strong


def test_each_is_found_once_in_order() -> None:
    """Repetition does not count, appearance decides the order, strong ones come first in `all`."""
    found = extract("EC bei B2-99, A1-77, B2-99 und EC")
    assert found.strong == ("b2-99", "a1-77")
    assert found.all == ("b2-99", "a1-77", "ec")


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_error(text: str) -> None:
    """No text breaks the extractor, and nothing that it finds is longer than the limit or blank."""
    found = extract(text)
    assert all(len(name) > 0 for name in found.all)
    assert set(found.strong).isdisjoint(found.soft)


@given(st.sampled_from(["POL-55012", "00123", "2024/118", "7-3-6"]), st.sampled_from(["", "(", '"', "¿", "\u200f", "· "]))
def test_the_same_code_is_found_whatever_surrounds_it(code: str, before: str) -> None:
    """Punctuation next to a code does not change it: query and passage are read alike."""
    assert extract(f"Wo {before}{code}? Dort.").strong == (code.casefold(),)


def test_very_long_tokens_are_left_out() -> None:
    """A token over the limit is noise, not a code."""
    assert extract("A1" * MAX_IDENTIFIER).all == ()


def test_a_query_and_its_sub_queries_are_read_together_and_bounded() -> None:
    """Identifiers of the question and of sub-queries count alike; their number is bounded."""
    assert query_identifiers(["A1-10 pH", "B2-20", "A1-10"]).all == ("a1-10", "b2-20", "ph")
    many = query_identifiers([" ".join(f"X{number}-1" for number in range(100))])
    assert len(many.strong) == MAX_PER_QUERY


@given(st.lists(st.integers(0, 3), max_size=30))
def test_tiers_are_a_stable_partition(counts: list[int]) -> None:
    """More identifiers first; within a tier the given order stays; nothing is lost."""
    order = tiers(range(len(counts)), counts)
    assert sorted(order) == list(range(len(counts)))
    for before, after in pairwise(order):
        assert (counts[before], -before) > (counts[after], -after)
