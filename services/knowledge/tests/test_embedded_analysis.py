"""Words, folding and terms; facets and refusals. The contract suite holds them against Lucene."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge.adapters.analysis import (
    ANALYZERS,
    MAX_QUERY_WORDS,
    MAX_WORD,
    Analyzer,
    analyzer_of,
    analyzers_of,
    fold,
    fold_german,
    query_words,
    words,
)
from knowledge.adapters.stored import MAX_FACET, conditions, facets, refusals, shown_metadata
from tests.contract.places import DIMENSION, TENANT, record

UMLAUTS = {"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss"}


@pytest.mark.parametrize(
    ("language", "analyzer"),
    [("de", "de"), ("DE", "de"), ("de-AT", "de"), ("de_CH", "de"), ("en-US", "en"), ("den", "std"), ("", "std"), (None, "std")],
)
def test_a_language_tag_has_one_analyzer(language: str | None, analyzer: str) -> None:
    """The primary subtag decides."""
    assert analyzer_of(language) == analyzer


def test_no_language_means_all() -> None:
    """And an empty one means the plain one."""
    assert analyzers_of(None) == ANALYZERS
    assert analyzers_of("") == ("std",)
    assert analyzers_of("de-AT") == ("de", "std")


@given(st.lists(st.sampled_from(["ä", "ö", "ü", "ß", "b", "l", "t", "r", "i", "n"]), min_size=1, max_size=10))
def test_both_spellings_of_german_are_one_term(letters: list[str]) -> None:
    """Whatever the word, as long as no other vowel stands before the umlaut."""
    written = "".join(letters).replace("iü", "itü")
    spelled = "".join(UMLAUTS.get(letter, letter) for letter in written)
    if "üü" not in written and "äü" not in written and "öü" not in written:
        assert fold_german(written) == fold_german(spelled) == fold_german(written.upper())


@given(st.text(max_size=300))
def test_any_text_gives_clean_terms(text: str) -> None:
    """No empty term, none with a space, quote or NUL; the words of a query are among those of the text."""
    for name in ANALYZERS:
        for term in Analyzer(name).terms(text):
            assert term
            assert not set(term) & set(' "\x00\n')
    assert set(query_words(text)) <= set(words(text))


def test_folding_is_one_form_for_all_ways_of_writing() -> None:
    """Composed, decomposed, full width, ligature, typographic apostrophe."""
    assert {fold(word) for word in ("Café", "cafe\u0301", "CAFÉ", "ｃａｆé")} == {"cafe"}
    assert fold("ﬁx") == "fix"
    assert fold("don\u2019t") == "don't"
    assert [fold_german(word) for word in ("neue", "Quelle", "Steuer", "Frauen")] == ["neue", "quelle", "steuer", "frauen"]


def test_long_words_are_cut_and_long_queries_bounded() -> None:
    """As Lucene cuts, and below its limit of clauses."""
    assert [len(word) for word in words("x" * 600)] == [MAX_WORD, MAX_WORD, 90]
    assert len(query_words(" ".join(f"w{index}" for index in range(1000)))) == MAX_QUERY_WORDS
    assert query_words("Wasser wasser WASSER, Licht") == ["Wasser", "Licht"]


def test_facets_are_scalars_and_lists_of_them() -> None:
    """Objects, nothing, endless numbers, long values and names with the separator have none."""
    metadata = {
        "s": "x",
        "n": 1,
        "f": 1.5,
        "b": True,
        "l": ["x", 2, "x", None, ["y"]],
        "o": {"p": 1},
        "none": None,
        "inf": float("inf"),
        "long": "x" * MAX_FACET,
        "sep\x1far": "x",
    }
    assert facets(metadata) == ("s\x1fx", "n\x1f1", "f\x1f1.5", "b\x1ftrue", "l\x1fx", "l\x1f2")


def test_conditions_know_their_field() -> None:
    """Fields of their own, everything else a facet; what cannot be stored is dropped from the values, not the condition."""
    found = conditions((("tags", ("b", "a")), ("room", ("\ud800", "x")), ("category", ())))
    assert [(one.field, one.values) for one in found] == [("tags", ["a", "b"]), ("facets", ["room\x1fx"]), ("category", [])]


def test_category_and_tags_join_the_metadata_where_there_are_any() -> None:
    """The document's own category wins over a metadata key of that name."""
    assert shown_metadata({"x": 1, "category": "meta"}, "", ()) == {"x": 1, "category": "meta"}
    assert shown_metadata({"x": 1, "category": "meta"}, "own", ("a",)) == {"x": 1, "category": "own", "tags": ["a"]}


def test_a_good_record_is_not_refused() -> None:
    """And each refusal names a field."""
    bad = record("b", vector=(1.0,))
    assert refusals(TENANT, [record("a"), record("c", vector=())], DIMENSION) == {}
    assert refusals(TENANT, [bad], DIMENSION)["b"].reason.startswith("vector: has 1")
