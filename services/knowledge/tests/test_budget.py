"""The budget of what is scored: cutting excerpts and sharing pairs between scopes."""

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from knowledge.budget import cut, share_heads
from knowledge.models import Candidate, Passage

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
FLAG = "\U0001f1e9\U0001f1ea"
PARTS = ["a", "ü", "u\u0308", "\r\n", FAMILY, FLAG, "e" + "\u0301" * 5, "\u0e01\u0e33", "क्षि", " ", "的", "\u200f", "한"]
texts = st.lists(st.sampled_from(PARTS), max_size=60).map("".join)


def boundaries(text: str) -> set[int]:
    """All grapheme boundaries, found by walking the whole text from its beginning."""
    ends, position = {0}, 0
    for grapheme in regex.findall(r"\X", text):
        position += len(grapheme)
        ends.add(position)
    return ends


@given(texts, st.integers(1, 120))
def test_a_cut_is_a_prefix_within_the_limit(text: str, limit: int) -> None:
    """What is left is the beginning of the text and has at most `limit` code points."""
    found = cut(text, limit)
    assert text.startswith(found)
    assert len(found) <= limit


@given(texts, st.integers(1, 120))
def test_a_cut_never_splits_a_grapheme(text: str, limit: int) -> None:
    """The cut stands at a boundary of the whole text, unless its first grapheme alone is over the limit."""
    found = cut(text, limit)
    first = regex.match(r"\X", text)
    if first is not None and len(first.group()) <= limit:
        assert len(found) in boundaries(text)


@given(texts, st.integers(1, 120))
def test_a_cut_is_the_longest_that_fits(text: str, limit: int) -> None:
    """No further grapheme would have fitted."""
    fitting = max(end for end in boundaries(text) if end <= limit)
    if fitting:
        assert len(cut(text, limit)) == fitting


@pytest.mark.parametrize("run", [FAMILY, FLAG, "e" + "\u0301" * 80])
@given(before=st.integers(0, 9), limit=st.integers(100, 300))
def test_a_long_run_of_one_kind_of_grapheme_is_not_split(run: str, before: int, limit: int) -> None:
    """Looking back from the limit finds the boundaries that walking from the beginning finds, however far that is."""
    text = "x" * before + run * 200
    assert len(cut(text, limit)) in boundaries(text)


def test_a_first_grapheme_over_the_limit_is_cut_inside() -> None:
    """A text whose first grapheme does not fit is not lost altogether."""
    assert cut(FAMILY + "x", 2) == FAMILY[:2]
    assert cut("e" + "\u0301" * 200, 10) == "e" + "\u0301" * 9


def test_a_text_that_fits_is_left_alone() -> None:
    """Exactly `limit` code points stay."""
    assert cut("abc", 3) == "abc"
    assert cut("", 3) == ""


def test_an_emoji_at_the_edge_goes_as_a_whole() -> None:
    """A joined emoji of which only a part would fit is left out."""
    assert cut("ab" + FAMILY, 4) == "ab"


def scope(names: str) -> list[Candidate]:
    """Candidates with one-letter ids."""
    return [Candidate(Passage(name, "d", "", "", "de", {}), rank, 0.0, None, None) for rank, name in enumerate(names, 1)]


scopes_of_names = st.lists(st.lists(st.sampled_from("abcdefghij"), unique=True, max_size=8).map("".join), min_size=1, max_size=4)


@given(scopes_of_names, st.integers(1, 12))
def test_all_scopes_together_send_at_most_the_depth(names: list[str], depth: int) -> None:
    """The distinct chunks of all heads are never more than the pairs there are."""
    heads = share_heads([scope(one) for one in names], depth)
    sent = {name for one, length in zip(names, heads, strict=True) for name in one[:length]}
    assert len(sent) <= depth
    assert all(0 <= length <= len(one) for one, length in zip(names, heads, strict=True))


@given(scopes_of_names, st.integers(1, 12))
def test_pairs_are_used_up_while_a_scope_still_has_candidates(names: list[str], depth: int) -> None:
    """A head ends before its list does only when no pair was left for its next chunk."""
    heads = share_heads([scope(one) for one in names], depth)
    sent = {name for one, length in zip(names, heads, strict=True) for name in one[:length]}
    for one, length in zip(names, heads, strict=True):
        assert length == len(one) or (len(sent) == depth and one[length] not in sent) or len(sent) == depth


@given(scopes_of_names)
def test_enough_pairs_send_every_candidate(names: list[str]) -> None:
    """With a pair for every chunk each head is its whole list."""
    assert share_heads([scope(one) for one in names], 10) == [len(one) for one in names]


@pytest.mark.parametrize(
    ("names", "depth", "expected"),
    [
        (["abc", "xyz"], 4, [2, 2]),
        (["abc", "xyz"], 3, [2, 1]),
        (["a", "vwxyz"], 4, [1, 3]),
        (["abc", "abc"], 3, [3, 3]),
        (["ab", "ba"], 2, [2, 2]),
        (["", "xyz"], 2, [0, 2]),
        (["abcdef"], 3, [3]),
    ],
)
def test_heads_are_taken_in_turn_by_hybrid_rank(names: list[str], depth: int, expected: list[int]) -> None:
    """Round-robin: one candidate of each scope a round; a chunk of several scopes costs one pair."""
    assert share_heads([scope(one) for one in names], depth) == expected


@given(st.integers(0, 20), st.integers(1, 20))
def test_one_scope_gets_its_first_candidates(size: int, depth: int) -> None:
    """Without scopes the head is simply the first `depth` candidates."""
    names = "abcdefghijklmnopqrst"[:size]
    assert share_heads([scope(names)], depth) == [min(size, depth)]
