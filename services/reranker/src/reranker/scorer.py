"""Two kinds of model behind one small interface: bind a query, tokenise each of its pairs, score pair by pair."""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from modelkit import Cpus, CrossEncoder, Encoder, ModelFiles, Tokens
from modelkit.encoder import Floats
from modelkit.session import Stop
from modelkit.tokenize import QueryTokens
from reranker.cache import Passage, PassageCache

Kind = Literal["cross-encoder", "late-interaction"]
ScoreKind = Literal["probability", "opaque"]


@dataclass(frozen=True, slots=True)
class Pair:
    """A document, ready to be scored against the query that it was bound to.

    Attributes:
        document: its text.
        tokens: what the model reads of it; of a cross-encoder the query too. Without content where nothing is left of the text.
        truncated: whether some of query or document did not fit.
    """

    document: str
    tokens: Tokens
    truncated: bool


class BoundQuery(Protocol):
    """A query, ready to meet documents."""

    def pair(self, document: str) -> Pair:
        """The pair as it will be run."""

    def runs(self, pair: Pair) -> Sequence[int]:
        """Tokens of each run of the model that scoring the pair would take now; none where all is known."""

    def score(self, pair: Pair, stop: Stop | None = None) -> float:
        """The raw score, by which results are sorted; not finite where the model broke down.

        Args:
            pair: from `pair`.
            stop: ends the run.

        Raises:
            RunTerminated: it was ended.
            RunFailed: the runtime refused it.
        """


class Scorer(Protocol):
    """A model that scores. All methods may be called from several threads at once."""

    kind: Kind
    score_kind: ScoreKind

    def bind(self, query: str) -> BoundQuery:
        """What can be done once for all pairs of a query; does not run the model."""

    def public(self, raw: float) -> float:
        """The score to show for a raw score; never falls where the raw score rises."""

    def logit(self, raw: float) -> float | None:
        """The raw score if it is a logit."""


class CrossEncoderScorer:
    """A run reads query and passage together. The raw score is the logit; one sigmoid makes it a probability."""

    kind: Kind = "cross-encoder"
    score_kind: ScoreKind = "probability"

    def __init__(self, model: CrossEncoder) -> None:
        self._model = model

    def bind(self, query: str) -> BoundQuery:
        """Tokenise the query."""
        return _CrossEncoderQuery(self._model, self._model.query(query))

    def public(self, raw: float) -> float:
        """The sigmoid of the logit."""
        return sigmoid(raw)

    def logit(self, raw: float) -> float | None:
        """The raw score itself."""
        return raw


class _CrossEncoderQuery:
    def __init__(self, model: CrossEncoder, query: QueryTokens) -> None:
        self._model, self._query = model, query

    def pair(self, document: str) -> Pair:
        tokens = self._model.pair(self._query, document)
        return Pair(document, tokens, tokens.truncated)

    def runs(self, pair: Pair) -> Sequence[int]:
        return (len(pair.tokens),)

    def score(self, pair: Pair, stop: Stop | None = None) -> float:
        return self._model.logit(pair.tokens, stop)


class LateInteractionScorer:
    """A run reads a passage; the score is the mean, over the query's tokens, of the best cosine with a token of the passage.

    Vectors are rounded to half precision whether they come from the model or from the cache: a score does not depend on which.
    """

    kind: Kind = "late-interaction"
    score_kind: ScoreKind = "opaque"

    def __init__(self, encoder: Encoder, passages: PassageCache) -> None:
        self._encoder = encoder
        self._passages = passages

    def bind(self, query: str) -> BoundQuery:
        """Tokenise the query; the first pair that is scored runs it."""
        return _LateInteractionQuery(self._encoder, self._passages, self._encoder.tokenize(query, "query"))

    def public(self, raw: float) -> float:
        """The raw score itself: comparable within this model only."""
        return raw

    def logit(self, raw: float) -> float | None:  # noqa: ARG002 - the interface's
        """None: a mean of cosines is no logit."""
        return None


class _LateInteractionQuery:
    def __init__(self, encoder: Encoder, passages: PassageCache, query: Tokens) -> None:
        self._encoder, self._passages, self._query = encoder, passages, query
        self._known: dict[str, Passage] = {}
        self._vectors: Floats | None = None
        self._lock = threading.Lock()

    def pair(self, document: str) -> Pair:
        passage = self._passages.get(document)
        if passage is not None:
            self._known[document] = passage  # held until it is scored: the cache may lose it before
        tokens = passage.tokens if passage is not None else self._encoder.tokenize(document, "passage")
        return Pair(document, tokens, truncated=tokens.truncated or self._query.truncated)

    def runs(self, pair: Pair) -> Sequence[int]:
        query = () if self._vectors is not None else (len(self._query),)
        return query if pair.document in self._known else (*query, len(pair.tokens))

    def score(self, pair: Pair, stop: Stop | None = None) -> float:
        # The passage first: a second worker is busy with its own passage while this one runs the query for both.
        passage = self._known.get(pair.document) or self._read(pair, stop)
        return max_sim(self._query_vectors(stop), passage.vectors.astype(np.float32))

    def _read(self, pair: Pair, stop: Stop | None) -> Passage:
        vectors = self._encoder.token_vectors(pair.tokens, stop).astype(np.float16)
        passage = Passage(pair.tokens, vectors)
        if np.isfinite(vectors).all():
            self._passages.put(pair.document, passage)
        return passage

    def _query_vectors(self, stop: Stop | None) -> Floats:
        with self._lock:
            if self._vectors is None:
                self._vectors = self._encoder.token_vectors(self._query, stop)
            return self._vectors


def max_sim(query: Floats, passage: Floats) -> float:
    """Mean over query tokens of the best cosine with a passage token.

    Args:
        query: [query tokens, dimension], each of length 1.
        passage: [passage tokens, dimension], each of length 1.

    Returns:
        -1..1; not a number where either has no tokens.
    """
    if not (query.size and passage.size):
        return math.nan
    return float(np.mean(np.max(query @ passage.T, axis=1)))


def sigmoid(logit: float) -> float:
    """1 / (1 + e^-logit), without overflow."""
    if logit >= 0:
        return 1.0 / (1.0 + math.exp(-logit))
    power = math.exp(logit)
    return power / (1.0 + power)


def open_scorer(files: ModelFiles, cpus: Cpus, passages: PassageCache | None = None) -> Scorer:
    """The scorer for a model's kind; `passages` is where late interaction keeps what it has read, by default nowhere."""
    if "cross-encoder" in files.spec.kinds:
        model = CrossEncoder(files, cpus)
        model.prepare()
        return CrossEncoderScorer(model)
    encoder = Encoder(files, cpus)
    encoder.prepare()
    return LateInteractionScorer(encoder, passages or PassageCache(0))
