"""How long a run will take, learned from those before it.

The time of a run is `pace x (a + b S + c S^2)` for S tokens. The three coefficients are the model's and the machine's and move
slowly; the pace is how fast the machine is just now (a neighbour, a second worker, a lower clock) and moves with the last runs. Whether
one run ends in time is asked of a high quantile of those; how long many take together, of their mean.
"""

import threading
from collections import deque
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

WINDOW = 32
"""Runs that the pace is made of."""
QUANTILE = 0.9
MARGIN = 1.1
"""The least distance of a prediction from what is usual."""
CLIP = 3.0
"""How far from the prediction a run may be before it counts as an outlier, as a factor."""
SLOWEST = 0.02
"""How much a run counts at least against those of about its length before it."""
RIDGE = 1e-3
SCALE = 100.0
TINY_S = 1e-9
FIRST_RUNS = 8
REFIT_EVERY = 8

Vector = NDArray[np.float64]
SUBSETS = [list(chosen) for size in (1, 2, 3) for chosen in combinations(range(3), size)]


class CostModel:
    """Seconds that a run of so many tokens takes; never negative, never less for more tokens.

    Runs are remembered by their length (in steps of the square root of two), and a run pushes out only what is known of its own
    length: weeks of short passages do not make it forget what a long one costs.

    Args:
        seconds_per_token: the first guess, until the warm-up has taught better.
    """

    def __init__(self, seconds_per_token: float = 0.001) -> None:
        self._coefficients: Vector = np.array([0.0, seconds_per_token * SCALE, 0.0])
        self._lengths: dict[int, _Length] = {}
        self._ratios: deque[float] = deque(maxlen=WINDOW)
        self._median = self._mean = self._high = 1.0
        self._learned = 0
        self._lock = threading.Lock()

    def predict_s(self, tokens: int) -> float:
        """Seconds within which one run of so many tokens will most likely end."""
        return max(self._high, MARGIN * self._mean) * self._shape(tokens)

    def average_s(self, tokens: int) -> float:
        """Seconds that such a run contributes to many, with a margin."""
        return MARGIN * self._mean * self._shape(tokens)

    def usual_s(self, tokens: int) -> float:
        """Seconds that it takes as often as not."""
        return self._median * self._shape(tokens)

    def learn(self, tokens: int, seconds: float) -> None:
        """Take one measured run into account."""
        with self._lock:
            self._learn_shape(tokens, self._ratio(tokens, seconds))
            self._learn_pace(self._ratio(tokens, seconds))

    def forget_pace(self) -> None:
        """How fast the machine was is of no interest any more: the next run tells how fast it is."""
        with self._lock:
            self._ratios.clear()

    def _shape(self, tokens: int) -> float:
        a, b, c = self._coefficients
        scaled = tokens / SCALE
        return float(a + scaled * (b + scaled * c))

    def _ratio(self, tokens: int, seconds: float) -> float:
        return max(seconds, TINY_S) / max(self._shape(tokens), TINY_S)

    def _learn_pace(self, ratio: float) -> None:
        self._ratios.append(ratio)
        ranked = sorted(self._ratios)
        self._median = ranked[len(ranked) // 2]
        self._mean = sum(min(each, CLIP * self._median) for each in ranked) / len(ranked)
        self._high = ranked[min(len(ranked) - 1, int(QUANTILE * len(ranked)))]

    def _learn_shape(self, tokens: int, ratio: float) -> None:
        self._learned += 1
        first = self._learned <= FIRST_RUNS
        # The first runs teach the order of magnitude, which no later one may overturn by itself.
        detrended = ratio if first else min(CLIP, max(1 / CLIP, ratio / self._median))
        length = self._lengths.setdefault(round(2 * np.log2(max(1, tokens))), _Length())
        length.learn(tokens, detrended * max(self._shape(tokens), TINY_S))
        if first or self._learned % REFIT_EVERY == 0:
            before = self._shape(tokens)
            self._coefficients = _fit(list(self._lengths.values()))
            if first:
                self._ratios.clear()  # they were measured against a guess
            elif before > TINY_S:
                self._ratios = deque((each * before / max(TINY_S, self._shape(tokens)) for each in self._ratios), WINDOW)


class _Length:
    """Moving averages of the runs of about one length."""

    def __init__(self) -> None:
        self.runs = 0
        self.tokens = self.seconds = 0.0

    def learn(self, tokens: int, seconds: float) -> None:
        self.runs += 1
        share = max(1 / self.runs, SLOWEST)
        self.tokens += share * (tokens - self.tokens)
        self.seconds += share * (seconds - self.seconds)


def _fit(lengths: Sequence[_Length]) -> Vector:
    """The non-negative coefficients with the least relative squared error, each length counting up to its 1/SLOWEST runs.

    Where lengths are too few to tell the coefficients apart, the time is taken to grow with the tokens.
    """
    scaled = np.array([length.tokens for length in lengths]) / SCALE
    seconds = np.maximum([length.seconds for length in lengths], TINY_S)
    weights = np.sqrt([min(length.runs, 1 / SLOWEST) for length in lengths])
    rows = np.stack([np.ones_like(scaled), scaled, scaled**2], axis=1) * (weights / seconds)[:, None]
    linear = float(np.sum(seconds) / max(TINY_S, np.sum(scaled)))
    ridge = np.sqrt(RIDGE) / linear
    matrix = np.vstack([rows, ridge * np.eye(3)])
    target = np.concatenate([weights, ridge * np.array([0.0, linear, 0.0])])
    return _non_negative(matrix, target)


def _non_negative(matrix: Vector, target: Vector) -> Vector:
    """Least squares over the non-negative: with three unknowns the best of the seven ways to leave some at zero is exact."""
    best, least = np.zeros(matrix.shape[1]), np.inf
    for chosen in SUBSETS:
        solution = np.linalg.lstsq(matrix[:, chosen], target, rcond=None)[0]
        if (solution < 0).any():
            continue
        error = float(np.sum((matrix[:, chosen] @ solution - target) ** 2))
        if error < least:
            best, least = np.zeros(matrix.shape[1]), error
            best[chosen] = solution
    return best
