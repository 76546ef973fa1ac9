"""Sequences put together by our own rules."""

from pathlib import Path

import pytest

from modelkit.tokenize import TextTokenizer, is_blank, mend_surrogates

WASSER, ERDE, SONNE = 7, 8, 9  # four special tokens, then the fixture's words


def test_one_text_stands_between_its_marks(xlmr_json: Path) -> None:
    """The file's own padding and truncation are off; the prefix is no content."""
    tokens = TextTokenizer(xlmr_json, "xlmr", 16).single("wasser erde", "query : ")
    assert tokens.ids.tolist() == [0, 4, 6, WASSER, ERDE, 2]
    assert tokens.content.tolist() == [False, False, False, True, True, False]
    assert tokens.type_ids.tolist() == [0] * 6
    assert not tokens.truncated


def test_a_long_text_is_cut_and_says_so(xlmr_json: Path) -> None:
    """At the end, with its closing mark kept."""
    tokens = TextTokenizer(xlmr_json, "xlmr", 8).single("wasser " * 50)
    assert tokens.ids.tolist() == [0, *[WASSER] * 6, 2]
    assert tokens.truncated


def test_an_empty_text_is_a_sequence_without_content(xlmr_json: Path) -> None:
    """It can be run all the same."""
    tokens = TextTokenizer(xlmr_json, "xlmr", 8).single("", "query : ")
    assert tokens.ids.tolist() == [0, 4, 6, 2]
    assert not tokens.content.any()


def test_a_bert_pair(bert_json: Path) -> None:
    """One mark between, and the second text has type 1."""
    tokenizer = TextTokenizer(bert_json, "bert", 16)
    tokens = tokenizer.pair(tokenizer.query("wasser"), "erde sonne")
    assert tokens.ids.tolist() == [2, WASSER, 3, ERDE, SONNE, 3]
    assert tokens.type_ids.tolist() == [0, 0, 0, 1, 1, 1]
    assert tokens.content.tolist() == [False, False, False, True, True, False]


def test_an_xlmr_pair(xlmr_json: Path) -> None:
    """Two marks between, and no types."""
    tokenizer = TextTokenizer(xlmr_json, "xlmr", 16)
    tokens = tokenizer.pair(tokenizer.query("wasser"), "erde sonne")
    assert tokens.ids.tolist() == [0, WASSER, 2, 2, ERDE, SONNE, 2]
    assert tokens.type_ids.tolist() == [0] * 7


@pytest.mark.parametrize(("query", "passage", "truncated"), [(3, 3, False), (3, 50, True), (50, 2, True), (50, 50, True)])
def test_the_query_is_cut_to_half_the_window_and_the_passage_to_the_rest(
    bert_json: Path, query: int, passage: int, truncated: bool
) -> None:
    """A long query never fails and never drives the passage out."""
    tokenizer = TextTokenizer(bert_json, "bert", 16)
    tokens = tokenizer.pair(tokenizer.query("wasser " * query), "erde " * passage)
    ids = tokens.ids.tolist()
    assert ids.count(WASSER) == min(query, 8)
    assert ids.count(ERDE) == min(passage, 16 - 3 - min(query, 8))
    assert len(ids) <= 16
    assert ids[-1] == 3
    assert tokens.truncated is truncated


@pytest.mark.parametrize("literal", ["</s>", "<s>", "<pad>", "</S>", "\uff1c/s\uff1e", "<\x00/s>", "</\u00ads>"])
def test_no_text_becomes_a_special_token(xlmr_json: Path, literal: str) -> None:
    """Neither written out, nor in the full width that normalisation folds, nor hidden behind what cleaning takes away."""
    tokens = TextTokenizer(xlmr_json, "xlmr", 32).single(f"wasser {literal} erde {literal}")
    inner = tokens.ids.tolist()[1:-1]
    assert not {0, 1, 2} & set(inner)
    assert WASSER in inner
    assert ERDE in inner


def test_the_words_of_a_literal_stay(bert_json: Path) -> None:
    """It loses its meaning, not its text: unknown pieces here, no separator."""
    tokens = TextTokenizer(bert_json, "bert", 32).single("wasser [SEP] erde [sep]")
    assert tokens.ids.tolist() == [2, WASSER, 12 + 4, 1, ERDE, 12 + 4, 1, 3]


def test_surrogates_are_mended_in_place() -> None:
    """The length is that of what came in; whole characters stay."""
    assert mend_surrogates("a\ud800b\udfff") == "a\ufffdb\ufffd"
    assert mend_surrogates("Grüße \U0001f600") == "Grüße \U0001f600"


@pytest.mark.parametrize(("text", "blank"), [("", True), (" \n\t", True), ("\x00\x1f", True), ("\u00a0\u2003", True), ("a", False)])
def test_blank_is_what_holds_nothing_to_read(text: str, blank: bool) -> None:
    """Control characters and white space of any kind."""
    assert is_blank(text) is blank


def test_a_tokenizer_without_the_templates_tokens_is_refused(bert_json: Path) -> None:
    """The manifest and the file must fit."""
    with pytest.raises(ValueError, match="has no <s>"):
        TextTokenizer(bert_json, "xlmr", 16)
