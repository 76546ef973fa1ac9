"""When the top is settled, on scores alone; and that it does not depend on the order in which they come."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reranker.outcome import Outcome, Scores
from reranker.settling import Settling, Top


@pytest.mark.parametrize(
    ("scores", "rule", "needed"),
    [
        ([5, 4, 3, 2, 1, 0], Settling(2, 2), 4),  # 3 and 2 miss the best two
        ([1, 2, 3, 4, 5, 6], Settling(2, 2), None),  # each is the best so far
        ([5, 4, 3, 9, 3, 2, 1], Settling(2, 2), 6),  # 9 begins the count anew
        ([5, 4, 4, 4], Settling(2, 2), 4),  # a tie misses: what came before stands above
        ([5, 4], Settling(2, 1), None),  # the top is not full before
        ([3, 2, 1], Settling(1, 1), 2),
    ],
)
def test_the_top_is_settled_after_so_many_misses_in_a_row(scores: list[float], rule: Settling, needed: int | None) -> None:
    """Counted in the order of the scores."""
    top = Top(rule)
    assert next((place for place, raw in enumerate(scores, 1) if top.settled_by(raw, place)), None) == needed


def test_a_tie_with_a_lower_index_is_no_miss() -> None:
    """In another order than the one given: it will stand above the other in the answer."""
    top = Top(Settling(1, 1))
    assert not top.settled_by(1.0, 7)
    assert not top.settled_by(1.0, 3)
    assert top.settled_by(1.0, 5)


def _scores(documents: list[str], rule: Settling | None, order: list[int] | None = None) -> Scores:
    scores = Scores(documents, lambda _: None, rule)
    scores.order = order or scores.order
    return scores


def _told(outcome: Outcome) -> tuple[list[int], list[tuple[int, str]]]:
    return [each.index for each in outcome.scored], [(each.index, each.reason) for each in outcome.unscored]


def test_blanks_and_what_is_no_number_neither_miss_nor_count() -> None:
    """They have no score that could be compared; the rest is named as settled, but for the blank."""
    scores = _scores(["a", "b", " ", "nan", "c", "d", "", "e"], Settling(1, 2))
    for index, raw in ((0, 9.0), (1, 1.0), (3, math.nan)):
        scores.add(index, raw, 1, truncated=False)
    assert not scores.settled
    scores.add(4, 2.0, 1, truncated=False)
    assert scores.settled
    assert _told(scores.outcome()) == ([0, 1, 4], [(2, "empty"), (3, "nan"), (5, "settled"), (6, "empty"), (7, "settled")])


def test_a_gap_before_it_is_the_deadlines() -> None:
    """What came behind a document that was not reached settles nothing."""
    scores = _scores(["a", "b", "c", "d"], Settling(1, 1))
    for index in (0, 2, 3):
        scores.add(index, -index, 1, truncated=False)
    assert not scores.settled
    assert _told(scores.outcome()) == ([0], [(1, "deadline"), (2, "deadline"), (3, "deadline")])


def test_a_score_behind_the_end_that_is_no_number_is_not_told() -> None:
    """It came by chance, as any other there."""
    scores = _scores(["a", "b", "c"], None)
    scores.add(0, 1.0, 1, truncated=False)
    scores.add(2, math.nan, 1, truncated=False)
    assert _told(scores.outcome()) == ([0], [(1, "deadline"), (2, "deadline")])


def test_the_first_in_order_count_and_not_the_first_given() -> None:
    """Named by their indices, as they were given."""
    scores = _scores(["a", "b", "c", "d"], None, [3, 1, 0, 2])
    for index in (3, 1, 2):
        scores.add(index, 1.0, 1, truncated=False)
    assert _told(scores.outcome()) == ([1, 3], [(0, "deadline"), (2, "deadline")])


def test_a_ranking_keeps_ties_as_they_were_given() -> None:
    """What has no score is last."""
    scores = _scores(["a", "", "c", "d", "e"], None)
    for index, raw in ((0, 1.0), (2, math.nan), (3, 2.0), (4, 1.0)):
        scores.add(index, raw, 1, truncated=False)
    assert scores.ranking() == [3, 0, 4, 1, 2]


RAW = st.one_of(st.integers(0, 3).map(float), st.just(math.nan))


@given(st.lists(RAW, min_size=1, max_size=12), st.integers(1, 4), st.integers(1, 4), st.data())
def test_the_answer_does_not_depend_on_who_was_faster(raws: list[float], top: int, after: int, data: st.DataObject) -> None:
    """Scores come in any order, and stop coming as soon as the top is settled: the same passages are told, by the same reasons."""
    order = data.draw(st.permutations(range(len(raws))))

    def told(arrivals: list[int]) -> tuple[list[int], list[tuple[int, str]]]:
        scores = _scores(["text"] * len(raws), Settling(top, after), order)
        for index in arrivals:
            if scores.settled:
                break
            scores.add(index, raws[index], 1, truncated=False)
        return _told(scores.outcome())

    assert told(data.draw(st.permutations(range(len(raws))))) == told(order)
