"""Every name that the service gives to telemetry."""

from collections.abc import Callable, Iterable
from copy import copy

from opentelemetry.metrics import CallbackOptions, Meter, Observation

SERVICE = "knowledge-reranker"

REQUEST_DURATION = "gen_ai.server.request.duration"
QUEUE_SIZE = "reranker.queue.size"
QUEUE_DURATION = "reranker.queue.duration"
BATCH_SIZE = "reranker.batch.size"
PAIRS = "reranker.pairs"
PAIR_DURATION = "reranker.pair.duration"
CACHE_LOOKUPS = "reranker.cache.lookups"
SERVED_PARTIALS = "reranker.served.partials"

OPERATION = "gen_ai.operation.name"
MODEL = "gen_ai.request.model"
ERROR = "error.type"
OUTCOME = "reranker.pair.outcome"
CACHE = "reranker.cache.name"
CACHE_RESULT = "reranker.cache.result"

REQUEST_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
BATCH_BUCKETS = (1, 2, 5, 10, 15, 20, 30, 50, 75, 100)
PAIR_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class Instruments:
    """The service's metrics.

    Args:
        meter: makes them.
        model: the model's id, on every point.
        waiting: how many pairs are accepted and not started.
        backlog_s: predicted seconds until all that is accepted will be done.
    """

    def __init__(self, meter: Meter, model: str, waiting: Callable[[], int], backlog_s: Callable[[], float]) -> None:
        self.attributes = {MODEL: model}

        def queue_size(_: CallbackOptions) -> Iterable[Observation]:
            yield Observation(waiting(), self.attributes)

        def queue_duration(_: CallbackOptions) -> Iterable[Observation]:
            yield Observation(backlog_s(), self.attributes)

        meter.create_observable_gauge(QUEUE_SIZE, [queue_size], unit="{pair}", description="Pairs accepted and not started")
        meter.create_observable_gauge(QUEUE_DURATION, [queue_duration], unit="s", description="Predicted time of what is accepted")
        self._duration = meter.create_histogram(
            REQUEST_DURATION,
            unit="s",
            description="Time to answer a rerank request",
            explicit_bucket_boundaries_advisory=REQUEST_BUCKETS,
        )
        self._batch_size = meter.create_histogram(
            BATCH_SIZE, unit="{pair}", description="Pairs of a rerank request", explicit_bucket_boundaries_advisory=BATCH_BUCKETS
        )
        self._pair_duration = meter.create_histogram(
            PAIR_DURATION, unit="s", description="Time to run one pair", explicit_bucket_boundaries_advisory=PAIR_BUCKETS
        )
        self._pairs = meter.create_counter(PAIRS, unit="{pair}", description="Pairs by outcome: scored, deadline, settled, empty, nan")
        self._lookups = meter.create_counter(CACHE_LOOKUPS, unit="{lookup}", description="Look-ups by cache and result")
        self._partials = meter.create_counter(SERVED_PARTIALS, unit="{response}", description="Answers that miss scores")

    def of(self, model: str) -> "Instruments":
        """The same instruments with another model's id on what they are told."""
        other = copy(self)
        other.attributes = {MODEL: model}
        return other

    def request(self, seconds: float, error: str | None = None) -> None:
        """One request; `error` is the reason of one that got no scores."""
        self._duration.record(seconds, {OPERATION: "rerank", **self.attributes, **({ERROR: error} if error else {})})

    def batch(self, pairs: int) -> None:
        """A request was taken on, with so many pairs."""
        self._batch_size.record(pairs, self.attributes)

    def pairs(self, outcome: str, count: int) -> None:
        """Documents of an answer: scored, or why not."""
        self._pairs.add(count, {OUTCOME: outcome, **self.attributes})

    def run(self, seconds: float) -> None:
        """A pair was run to its end."""
        self._pair_duration.record(seconds, self.attributes)

    def lookup(self, cache: str, result: str, count: int = 1) -> None:
        """Pairs or passages were looked up: hit, miss, or (a pair) joined with the same one of another request."""
        self._lookups.add(count, {CACHE: cache, CACHE_RESULT: result, **self.attributes})

    def partial(self) -> None:
        """An answer with status `partial`."""
        self._partials.add(1, self.attributes)
