"""A loaded model as the scheduler sees it: what it scores, what that costs here and now, and what tells it from others."""

import math
from typing import Literal, Protocol

import structlog

from modelkit.serving import Clock
from modelkit.session import RunFailed, RunTerminated, Stop
from reranker.cache import PairKeys
from reranker.cost import CostModel
from reranker.scorer import Pair, Scorer

STALE_S = 5.0
"""Seconds without a run after which nobody knows how fast the machine is now."""

Cache = Literal["pairs", "passages"]
Lookup = Literal["hit", "joined", "miss"]

log = structlog.get_logger(__name__)


class Observer(Protocol):
    """Who is told of each pair of one model; `telemetry.Instruments` is one."""

    def pairs(self, outcome: str, count: int) -> None:
        """Documents of an answer: scored, or why not."""

    def run(self, seconds: float) -> None:
        """A pair was run."""

    def lookup(self, cache: Cache, result: Lookup, count: int = 1) -> None:
        """Something was known, on its way for another request, or neither."""

    def of(self, model: str) -> "Observer":
        """The same for another model, by its id."""


class Model:
    """A model that is loaded and warm.

    Args:
        scorer: scores its pairs.
        cost: predicts how long a run takes; learns from each.
        observer: is told of each pair.
        clock: times the runs.
        identity: id, revision and precision: they tell it from others in the cache.
    """

    def __init__(self, scorer: Scorer, cost: CostModel, observer: Observer, clock: Clock, identity: tuple[str, ...] = ()) -> None:
        self.scorer = scorer
        self.cost = cost
        self.observer = observer
        self.clock = clock
        self.identity = identity
        self._ran_at = clock()

    @property
    def stale(self) -> bool:
        """Whether it has not run for so long that its predictions may be wrong."""
        return self.clock() - self._ran_at > STALE_S

    def bind(self, query: str) -> "PricedQuery":
        """Tokenise the query."""
        return PricedQuery(self, query)

    def learn(self, tokens: int, seconds: float) -> None:
        """A run has just ended that took so long."""
        if self.clock() - seconds - self._ran_at > STALE_S:
            self.cost.forget_pace()
        self.cost.learn(tokens, seconds)
        self._ran_at = self.clock()


class PricedQuery:
    """A query bound to a model: its pairs have keys and prices, and every run teaches the model what a run costs."""

    def __init__(self, model: Model, query: str) -> None:
        self.model = model
        self._keys = PairKeys(model.identity, query)
        self._bound = model.scorer.bind(query)

    def key(self, document: str) -> bytes:
        """Equal for pairs that have the same score."""
        return self._keys.key(document)

    def pair(self, document: str) -> Pair:
        """Tokenise the document."""
        return self._bound.pair(document)

    def cost_s(self, pair: Pair) -> float:
        """Predicted seconds, as a share of the work of many."""
        return sum(map(self.model.cost.average_s, self._bound.runs(pair)))

    def price_s(self, pair: Pair) -> float:
        """Seconds within which the pair will end if it is started now; less than before if its passage has become known."""
        return sum(map(self.model.cost.predict_s, self._bound.runs(pair)))

    def score(self, pair: Pair, stop: Stop) -> tuple[float | None, Exception | None]:
        """The raw score; not a number where the runtime failed on this pair; or the bug that it met; or neither: it was ended."""
        runs = self._bound.runs(pair)
        started = self.model.clock()
        try:
            raw = self._bound.score(pair, stop)
        except RunTerminated:
            return None, None
        except RunFailed as failure:
            log.warning("run_failed", error=str(failure))
            raw = math.nan
        except Exception as error:  # noqa: BLE001 - it belongs to the requests that wait for this pair, not to this thread
            return None, error
        seconds = self.model.clock() - started
        self.model.observer.run(seconds)
        if len(runs) == 1:  # of several, nobody knows which took how long
            self.model.learn(runs[0], seconds)
        return raw, None
