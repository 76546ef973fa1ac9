"""Two kinds of model behind one small interface: bind a query, tokenise each of its pairs, score one pair a run."""

import math
from typing import Literal, Protocol

import numpy as np

from modelkit import Cpus, CrossEncoder, Encoder, ModelFiles, Tokens
from modelkit.encoder import Floats
from modelkit.runtime import ort
from modelkit.tokenize import QueryTokens

Kind = Literal["cross-encoder", "late-interaction"]
ScoreKind = Literal["probability", "opaque"]


class BoundQuery(Protocol):
    """A query, ready to meet documents."""

    def pair(self, document: str) -> Tokens:
        """The pair as it will be run; without content where nothing of the document is left."""

    def score(self, pair: Tokens, options: ort.RunOptions | None = None) -> float:
        """One run. The raw score, by which results are sorted; not finite where the model broke down.

        Args:
            pair: from `pair`.
            options: setting `terminate` on them ends the run.
        """


class Scorer(Protocol):
    """A model that scores. All methods may be called from several threads at once."""

    kind: Kind
    score_kind: ScoreKind

    def bind(self, query: str) -> BoundQuery:
        """What can be done once for all pairs of a query; may run the model."""

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

    def pair(self, document: str) -> Tokens:
        return self._model.pair(self._query, document)

    def score(self, pair: Tokens, options: ort.RunOptions | None = None) -> float:
        return self._model.logit(pair, options)


class LateInteractionScorer:
    """A run reads the passage; the score is the mean, over the query's tokens, of the best cosine with a token of the passage."""

    kind: Kind = "late-interaction"
    score_kind: ScoreKind = "opaque"

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def bind(self, query: str) -> BoundQuery:
        """Run the query once."""
        tokens = self._encoder.tokenize(query, "query")
        return _LateInteractionQuery(self._encoder, self._encoder.token_vectors(tokens), truncated=tokens.truncated)

    def public(self, raw: float) -> float:
        """The raw score itself: comparable within this model only."""
        return raw

    def logit(self, raw: float) -> float | None:  # noqa: ARG002 - the interface's
        """None: a mean of cosines is no logit."""
        return None


class _LateInteractionQuery:
    def __init__(self, encoder: Encoder, vectors: Floats, *, truncated: bool) -> None:
        self._encoder, self._vectors, self._truncated = encoder, vectors, truncated

    def pair(self, document: str) -> Tokens:
        tokens = self._encoder.tokenize(document, "passage")
        if not self._truncated:
            return tokens
        return Tokens(tokens.ids, tokens.type_ids, tokens.content, truncated=True)

    def score(self, pair: Tokens, options: ort.RunOptions | None = None) -> float:
        return max_sim(self._vectors, self._encoder.token_vectors(pair, options))


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


def open_scorer(files: ModelFiles, cpus: Cpus) -> Scorer:
    """The scorer for a model's kind."""
    if "cross-encoder" in files.spec.kinds:
        return CrossEncoderScorer(CrossEncoder(files, cpus))
    return LateInteractionScorer(Encoder(files, cpus))
