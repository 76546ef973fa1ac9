"""Text made safe: everything that cannot be encoded or printed goes out, and nothing else."""

import datetime as dt
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicekit.hygiene import clean, clean_text

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec=None), max_size=4), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\x00b", "ab"),
        ("a\ud800b", "a\ufffdb"),
        ("\udfff\ud800", "\ufffd\ufffd"),
        ("a\x1b[31mb\x7f\x9b", "a[31mb"),
        ("tab\tfeed\nreturn\r", "tab\tfeed\nreturn\r"),
        ("", ""),
    ],
)
def test_what_goes_out(text: str, expected: str) -> None:
    """NUL and the other controls are removed, lone surrogates become U+FFFD; tabs and line ends are text."""
    assert clean_text(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "ä ß 的",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "\u202e\u0645\u0631\u062d\u0628\u0627\u202c",
        "</s>",
        "e\u0301",
        "\ufeffx",
        "\ue000",
        "\U0010ffff",
        " \u00a0\u3000",
    ],
)
def test_what_stays(text: str) -> None:
    """Emoji, right-to-left text, special tokens, combining marks and odd blanks are left as they are."""
    assert clean_text(text) == text


@given(st.text(st.characters(codec=None)))
def test_any_text_can_be_encoded_afterwards_and_cleaning_again_changes_nothing(text: str) -> None:
    """The result is valid UTF-8, no longer than before, and stable."""
    found = clean_text(text)
    assert found.encode().decode() == found
    assert len(found) <= len(text)
    assert clean_text(found) == found


@given(anything)
def test_any_json_value_can_be_answered_afterwards(value: Any) -> None:
    """Keys and values alike, whatever the nesting."""
    assert json.dumps(clean(value), allow_nan=False, ensure_ascii=False).encode()


def test_numbers_and_structure_stay() -> None:
    """Cleaning changes texts, and what JSON cannot say, and nothing more."""
    value = {"a": [1, 2.5, True, None, {"b": "c"}]}
    assert clean(value) == value
    assert clean({"k\x00": ("x\ud800", float("nan"))}) == {"k": ["x\ufffd", None]}


def test_what_yaml_knows_and_json_does_not_becomes_text() -> None:
    """A date is its ISO text, a key that is no string is written as one."""
    assert clean({"stand": dt.date(2024, 1, 31), 5: "x"}) == {"stand": "2024-01-31", "5": "x"}


def test_deep_nesting_is_a_value_error_and_not_a_recursion_error() -> None:
    """What is nested too deeply can be refused like any other wrong value."""
    value: Any = "x"
    for _ in range(5000):
        value = [value]
    with pytest.raises(ValueError, match="deep"):
        clean(value)
