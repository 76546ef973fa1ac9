"""The cost model against made-up machines."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reranker.cost import WINDOW, CostModel

LENGTHS = (16, 40, 128, 166, 300, 512)
RUNS = st.lists(st.tuples(st.integers(1, 8192), st.floats(0, 100)), max_size=60)


def _machine(tokens: int) -> float:
    """Seconds: 2 ms, 0.8 ms a token, and attention."""
    return 0.002 + 0.0008 * tokens + 4e-7 * tokens**2


def _taught(runs: int = 200, *, noise: float = 0.1, outliers: float = 0.0, slower: float = 1.0, seed: int = 1) -> CostModel:
    model, chance = CostModel(), np.random.default_rng(seed)
    for number in range(runs):
        tokens = LENGTHS[number % len(LENGTHS)]
        factor = chance.uniform(1 - noise, 1 + noise) * (50 if chance.random() < outliers else 1)
        model.learn(tokens, slower * factor * _machine(tokens))
    return model


@given(RUNS)
def test_a_prediction_is_a_number_that_never_falls_with_the_length(runs: list[tuple[int, float]]) -> None:
    """Whatever was measured."""
    model = CostModel()
    for tokens, seconds in runs:
        model.learn(tokens, seconds)
    predicted = [model.predict_s(tokens) for tokens in (0, 1, 10, 100, 512, 1024, 8192)]
    assert all(math.isfinite(each) and each >= 0 for each in predicted)
    assert predicted == sorted(predicted)
    assert all(model.average_s(tokens) <= model.predict_s(tokens) for tokens in (1, 100, 8192))


@pytest.mark.parametrize("tokens", [20, 100, 200, 450, 1000])
def test_lengths_between_and_beyond_those_seen_are_predicted(tokens: int) -> None:
    """Within a tenth, from runs that scatter by a tenth."""
    assert _taught().usual_s(tokens) == pytest.approx(_machine(tokens), rel=0.1)


def test_most_runs_end_before_their_prediction() -> None:
    """About nine of ten, over several machines: a window of runs knows its own quantile only roughly."""
    chance = np.random.default_rng(2)
    shares = []
    for seed in range(20):
        predicted = _taught(noise=0.4, seed=seed).predict_s(166)
        shares.append(np.mean(chance.uniform(0.6, 1.4, 1000) * _machine(166) <= predicted))
    assert 0.85 < np.mean(shares) < 0.99


def test_many_together_take_about_their_average() -> None:
    """With its margin of a tenth, however they scatter: a sum of high quantiles would send away half of those that fit."""
    model, chance = _taught(noise=0.8, runs=2000), np.random.default_rng(4)
    together = float(np.sum(chance.uniform(0.2, 1.8, 500) * _machine(166))) / 500
    assert model.average_s(166) == pytest.approx(1.1 * together, rel=0.25)
    assert model.predict_s(166) > 1.25 * model.average_s(166)


def test_outliers_hardly_move_it() -> None:
    """One run in twenty takes fifty times as long: the usual stays what it was."""
    assert _taught(600, outliers=0.05).usual_s(166) == pytest.approx(_machine(166), rel=0.2)


def test_a_machine_that_becomes_slower_or_faster_is_followed_within_a_window() -> None:
    """By a factor of 2.5, at lengths that were not among the latest as well."""
    model = _taught()
    for factor in (2.5, 1.0):
        for _ in range(WINDOW):
            model.learn(166, factor * _machine(166))
        assert model.usual_s(166) == pytest.approx(factor * _machine(166), rel=0.1)
        assert model.usual_s(512) == pytest.approx(factor * _machine(512), rel=0.35)


def test_long_passages_are_remembered_through_many_short_ones() -> None:
    """Thousands of runs of one length teach nothing about another."""
    model = _taught()
    for _ in range(3000):
        model.learn(40, _machine(40))
    assert model.usual_s(512) == pytest.approx(_machine(512), rel=0.1)


def test_one_length_alone_is_taken_to_grow_with_the_tokens() -> None:
    """Not with their square, and not at all."""
    model = CostModel(1.0)
    for _ in range(20):
        model.learn(100, 1.0)
    assert model.usual_s(200) == pytest.approx(2.0, rel=0.01)
    assert model.predict_s(200) == pytest.approx(2.2, rel=0.01)


def test_the_first_guess_lasts_until_the_first_run() -> None:
    """Then it is forgotten, however wrong it was."""
    model = CostModel(1.0)
    assert model.usual_s(10) == pytest.approx(10.0)
    model.learn(10, 0.001)
    assert model.usual_s(10) == pytest.approx(0.001, rel=0.01)
