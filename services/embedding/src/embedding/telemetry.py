"""Every name that the service gives to telemetry."""

from opentelemetry.metrics import Meter

SERVICE = "knowledge-embedding"

REQUEST_DURATION = "gen_ai.server.request.duration"
TEXTS = "embedding.texts"
TRUNCATED = "embedding.texts.truncated"

OPERATION = "gen_ai.operation.name"
MODEL = "gen_ai.request.model"
ERROR = "error.type"
KIND = "embedding.kind"

DURATION_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)


class Instruments:
    """The service's metrics."""

    def __init__(self, meter: Meter, model: str) -> None:
        self._model = model
        self._duration = meter.create_histogram(
            REQUEST_DURATION,
            unit="s",
            description="Time to answer a request for embeddings",
            explicit_bucket_boundaries_advisory=DURATION_BUCKETS,
        )
        self._texts = meter.create_counter(TEXTS, unit="{text}", description="Texts embedded")
        self._truncated = meter.create_counter(TRUNCATED, unit="{text}", description="Texts that did not fit the model's window")

    def request(self, seconds: float, error: str | None = None) -> None:
        """One request; `error` is the reason of one that got no vectors."""
        attributes = {OPERATION: "embeddings", MODEL: self._model, **({ERROR: error} if error else {})}
        self._duration.record(seconds, attributes)

    def texts(self, kind: str, count: int, truncated: int) -> None:
        """The texts of one answered request."""
        attributes = {MODEL: self._model, KIND: kind}
        self._texts.add(count, attributes)
        self._truncated.add(truncated, attributes)
