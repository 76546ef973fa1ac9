"""Flat reciprocal rank fusion, against a second implementation that is as naive as the formula, and what lexical lists weigh."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge.fusion import LegList, coordination_level, fuse, lexical_factor
from knowledge.models import Hit, Leg, Passage

WEIGHTS = {Leg.LEXICAL: 1.0, Leg.VECTOR: 1.0, Leg.IDENTIFIER: 1.0}


def passage(name: str) -> Passage:
    """A passage of which only the id matters."""
    return Passage(name, "doc", "", "", "de", {})


def legs(leg: Leg, names: str, sub_query: int = 0, scores: list[float] | None = None, factor: float = 1.0) -> LegList:
    """A leg's list of one-letter passages, best first."""
    values = scores or [float(len(names) - place) for place in range(len(names))]
    return LegList(leg, sub_query, [Hit(passage(name), score) for name, score in zip(names, values, strict=True)], factor)


def naive(lists: list[LegList], weights: dict[Leg, float], rrf_k: int, n_sub_queries: int) -> list[tuple[str, float]]:
    """The formula of the design, word for word, without any of the product's shortcuts."""
    ids = {hit.passage.id for one in lists for hit in one.hits}

    def score(name: str) -> float:
        total = 0.0
        for one in lists:
            for rank in range(1, len(one.hits) + 1):
                if one.hits[rank - 1].passage.id == name:
                    total += weights[one.leg] * one.factor / (n_sub_queries * (rrf_k + rank))
        return total

    def best(name: str) -> int:
        return min(rank for one in lists for rank, hit in enumerate(one.hits, 1) if hit.passage.id == name)

    return [(name, score(name)) for name in sorted(ids, key=lambda name: (-round(score(name), 12), best(name), name))]


@st.composite
def leg_lists(draw: st.DrawFn) -> tuple[list[LegList], int]:
    """Lists for each (sub-query, leg), each passage at most once in a list."""
    n_sub_queries = draw(st.integers(1, 3))
    lists = []
    for sub_query in range(n_sub_queries):
        for leg in (Leg.LEXICAL, Leg.VECTOR):
            names = "".join(draw(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)))
            factor = draw(st.sampled_from([1.0, 2.0, 7.5])) if leg is Leg.LEXICAL else 1.0
            lists.append(legs(leg, names, sub_query, factor=factor))
    return lists, n_sub_queries


@given(leg_lists(), st.sampled_from([1, 10, 60]))
def test_scores_and_order_equal_the_naive_formula(drawn: tuple[list[LegList], int], rrf_k: int) -> None:
    """Score, order and ties are those of a word-for-word implementation of the formula."""
    lists, n_sub_queries = drawn
    fused = fuse(lists, WEIGHTS, rrf_k, n_sub_queries)
    expected = naive(lists, WEIGHTS, rrf_k, n_sub_queries)
    assert [one.rrf for one in fused] == pytest.approx([score for _, score in expected], rel=1e-12)
    assert [one.passage.id for one in fused] == [name for name, _ in expected]
    assert [one.hybrid_rank for one in fused] == list(range(1, len(expected) + 1))


@given(leg_lists(), st.randoms(use_true_random=False))
def test_the_order_of_the_legs_does_not_matter(drawn: tuple[list[LegList], int], random: object) -> None:
    """Fusing the same lists in another order gives the same scores and ranks, to the last bit."""
    lists, n_sub_queries = drawn
    shuffled = list(lists)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = (fuse(order, WEIGHTS, 60, n_sub_queries) for order in (lists, shuffled))
    assert [(c.passage.id, c.rrf, c.similarity, c.bm25) for c in one] == [(c.passage.id, c.rrf, c.similarity, c.bm25) for c in other]


def test_one_hit_scores_the_reciprocal_of_k_plus_rank() -> None:
    """Ranks count from 1: the first hit of a single leg scores 1 / 61, the second 1 / 62."""
    first, second = fuse([legs(Leg.VECTOR, "ab")], WEIGHTS, 60, 1)
    assert (first.rrf, second.rrf) == (pytest.approx(1 / 61), pytest.approx(1 / 62))


def test_sub_queries_share_the_weight() -> None:
    """With two sub-queries each term counts half, so that more sub-queries do not outweigh a leg."""
    one, two = fuse([legs(Leg.VECTOR, "a")], WEIGHTS, 60, 1), fuse([legs(Leg.VECTOR, "a"), legs(Leg.VECTOR, "a", 1)], WEIGHTS, 60, 2)
    assert one[0].rrf == pytest.approx(two[0].rrf)
    assert fuse([legs(Leg.VECTOR, "a")], WEIGHTS, 60, 2)[0].rrf == pytest.approx(1 / 122)


def test_a_legs_weight_multiplies_its_terms() -> None:
    """A leg of weight 3 gives three times the score, and wins over a leg of weight 1."""
    fused = fuse([legs(Leg.LEXICAL, "a"), legs(Leg.VECTOR, "b")], {**WEIGHTS, Leg.VECTOR: 3.0}, 60, 1)
    assert [(one.passage.id, one.rrf) for one in fused] == [("b", pytest.approx(3 / 61)), ("a", pytest.approx(1 / 61))]


def test_equal_scores_go_by_best_leg_rank() -> None:
    """Of two passages with one score the one that some leg ranked better stands first."""
    # 1/(1+1) = 0.5 for `b`; `a` gets 1/(1+3) twice = 0.5: the same score, but its best rank is 3.
    lists = [legs(Leg.LEXICAL, "bxa"), legs(Leg.VECTOR, "yza")]
    ids = [one.passage.id for one in fuse(lists, WEIGHTS, 1, 1) if one.passage.id in "ab"]
    assert ids == ["b", "a"]


def test_equal_scores_and_ranks_go_by_chunk_id() -> None:
    """The last tie-break is the chunk id, ascending."""
    fused = fuse([legs(Leg.LEXICAL, "z"), legs(Leg.VECTOR, "a")], WEIGHTS, 60, 1)
    assert [one.passage.id for one in fused] == ["a", "z"]


def test_similarity_and_bm25_are_the_best_over_sub_queries() -> None:
    """Each score field holds the best of its own leg, whichever sub-query it came from."""
    lists = [
        legs(Leg.VECTOR, "a", 0, [0.2]),
        legs(Leg.VECTOR, "a", 1, [0.7]),
        legs(Leg.LEXICAL, "a", 0, [9.0]),
        legs(Leg.LEXICAL, "a", 1, [3.0]),
    ]
    [only] = fuse(lists, WEIGHTS, 60, 2)
    assert (only.similarity, only.bm25) == (0.7, 9.0)


def test_a_negative_cosine_is_kept_and_the_better_one_wins() -> None:
    """A raw cosine may be below zero; it is neither dropped nor taken for a missing one."""
    [only] = fuse([legs(Leg.VECTOR, "a", 0, [-0.5]), legs(Leg.VECTOR, "a", 1, [-0.1])], WEIGHTS, 60, 2)
    assert only.similarity == -0.1


def test_a_leg_that_did_not_hit_leaves_null() -> None:
    """A passage that only one leg found has no score of the other, and identifier hits fill neither."""
    fused = {
        one.passage.id: one for one in fuse([legs(Leg.LEXICAL, "a"), legs(Leg.VECTOR, "b"), legs(Leg.IDENTIFIER, "c")], WEIGHTS, 60, 1)
    }
    assert fused["a"].similarity is None
    assert fused["b"].bm25 is None
    assert (fused["c"].similarity, fused["c"].bm25) == (None, None)


def test_the_terms_of_the_sum_are_named_by_leg_and_sub_query() -> None:
    """`explain` can show which leg and sub-query gave what; the terms sum up to the score."""
    [only] = fuse([legs(Leg.LEXICAL, "a"), legs(Leg.VECTOR, "a", 1)], WEIGHTS, 60, 2)
    assert set(only.terms) == {"lexical:0", "vector:1"}
    assert sum(only.terms.values()) == pytest.approx(only.rrf)


def test_nothing_fuses_to_nothing() -> None:
    """Empty lists give an empty list."""
    assert fuse([], WEIGHTS, 60, 1) == []
    assert fuse([legs(Leg.LEXICAL, "")], WEIGHTS, 60, 1) == []


def test_a_lists_factor_multiplies_its_terms_and_no_others() -> None:
    """The factor of one list is in the terms that are shown and summed; the other lists of the leg keep theirs."""
    fused = fuse([legs(Leg.LEXICAL, "a", factor=3.0), legs(Leg.LEXICAL, "a", 1), legs(Leg.VECTOR, "a")], WEIGHTS, 60, 2)
    assert fused[0].terms == {"lexical:0": pytest.approx(3 / 122), "lexical:1": pytest.approx(1 / 122), "vector:0": pytest.approx(1 / 122)}
    assert fused[0].rrf == pytest.approx(sum(fused[0].terms.values()))


@pytest.mark.parametrize(
    ("query", "text", "level"),
    [
        ("how often to water a monstera", "Monstera: water it weekly, not too often.", 3),
        ("watering monsteras", "water the monstera", 2),
        ("water WATER waters", "water water", 1),
        ("Wie viel Licht braucht sie?", "Sie braucht helles Licht.", 2),
        ("the pH of it", "the pH of it", 0),
        ("", "water", 0),
        ("water", "", 0),
        ("Staunässe vermeiden", unicodedata.normalize("NFD", "STAUNÄSSE vermeidet man so"), 2),
    ],
)
def test_words_of_four_letters_count_once_by_their_beginning(query: str, text: str, level: int) -> None:
    """Inflection, case, repetition and the form of an umlaut do not matter; short words do not count."""
    assert coordination_level(query, text) == level


@given(st.text(), st.text(), st.text())
def test_more_text_never_shares_fewer_words(query: str, text: str, more: str) -> None:
    """The level grows with either text and is the same from both sides."""
    level = coordination_level(query, text)
    assert 0 <= level <= coordination_level(query, f"{text} {more}")
    assert level <= coordination_level(f"{query} {more}", text)
    assert level == coordination_level(text, query)


@given(st.integers(0, 300), st.floats(0, 100), st.floats(0, 100))
def test_the_factor_is_bounded_and_grows_with_the_level(level: int, weight: float, highest: float) -> None:
    """Never below 1; the product never above the larger of weight and maximum; never smaller for more shared words."""
    factor = lexical_factor(level, weight, highest)
    assert 1 <= factor <= lexical_factor(level + 1, weight, highest)
    assert weight * factor <= max(weight, highest) * (1 + 1e-12)


@pytest.mark.parametrize(("level", "factor"), [(0, 1), (1, 1), (2, 1), (3, 3), (4, 6), (5, 10), (6, 10), (40, 10)])
def test_each_pair_of_shared_words_adds_the_weight_once_more(level: int, factor: float) -> None:
    """Weight 0.1 and maximum 1: the number of pairs, from one to ten."""
    assert lexical_factor(level, 0.1, 1.0) == pytest.approx(factor)


@pytest.mark.parametrize(("weight", "highest"), [(0.1, 0.1), (0.1, 0.0), (1.0, 1.0), (2.0, 1.0), (0.0, 1.0)])
def test_a_maximum_at_the_weight_or_below_fixes_it(weight: float, highest: float) -> None:
    """That is the switch; a leg that is switched off stays off."""
    assert lexical_factor(20, weight, highest) == 1
