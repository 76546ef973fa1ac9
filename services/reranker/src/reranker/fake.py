"""A scorer without a model, whose time passes on a clock that is set by hand: for tests of everything around the scores."""

import math
import threading
from collections.abc import Callable, Sequence

import numpy as np

from modelkit import Tokens
from modelkit.session import RunTerminated, Stop
from reranker.scorer import BoundQuery, Kind, Pair, ScoreKind, sigmoid

Score = Callable[[str, str], float]


class ManualClock:
    """Stands still until it is told to go on."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """Seconds."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        with self._lock:
            self.now += seconds


def shared_words(query: str, document: str) -> float:
    """How many words of the query the document holds."""
    return float(len(set(query.lower().split()) & set(document.lower().split())))


class FakeScorer:
    """Scores by `score`; a pair has a token for each word of the document and takes `seconds_per_token` for each.

    Args:
        clock: is advanced by each run.
        seconds_per_token: how long a run takes.
        score: the raw score of query and document.
    """

    kind: Kind = "cross-encoder"
    score_kind: ScoreKind = "probability"

    def __init__(self, clock: ManualClock, *, seconds_per_token: float = 0.0, score: Score = shared_words) -> None:
        self.clock = clock
        self.seconds_per_token = seconds_per_token
        self.score = score
        self.runs: list[str] = []
        self.stops: dict[str, Stop] = {}
        """Of the last run of each document."""

    def bind(self, query: str) -> BoundQuery:
        """Takes no time."""
        return _FakeQuery(self, query)

    def public(self, raw: float) -> float:
        """The sigmoid, as of a cross-encoder."""
        return sigmoid(raw)

    def logit(self, raw: float) -> float | None:
        """The raw score."""
        return raw if math.isfinite(raw) else None


class _FakeQuery:
    def __init__(self, scorer: FakeScorer, query: str) -> None:
        self._scorer, self._query = scorer, query

    def pair(self, document: str) -> Pair:
        count = len(document.split())
        ids, content = np.zeros(count, np.int64), np.ones(count, np.bool_)
        return Pair(document, Tokens(ids, ids, content, truncated=False), truncated=False)

    def runs(self, pair: Pair) -> Sequence[int]:
        return (len(pair.tokens),)

    def score(self, pair: Pair, stop: Stop | None = None) -> float:
        self._scorer.runs.append(pair.document)
        if stop is not None:
            self._scorer.stops[pair.document] = stop
        self._scorer.clock.advance(len(pair.tokens) * self._scorer.seconds_per_token)
        raw = self._scorer.score(self._query, pair.document)
        if stop is not None and stop.requested:
            raise RunTerminated
        return raw
