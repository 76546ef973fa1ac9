"""Real weights: the scores that they are known for, and texts that nobody should send."""

import numpy as np
import pytest

from modelkit import CrossEncoder, Encoder, ensure
from modelkit.selfcheck import require_checks, run_checks

pytestmark = pytest.mark.models

POPULATION = "Berlin has a population of 3,520,031 registered inhabitants in an area of 891.82 square kilometers."
MUSEUM = "New York City is famous for the Metropolitan Museum of Art."
QUESTION = "How many people live in Berlin?"

HOSTILE = {
    "lone surrogates": "\ud800\udfff" * 50_000,
    "NUL": "\x00" * 100_000,
    "emoji": "\U0001f469\u200d\U0001f680" * 33_000,
    "right to left": "\u202e\u0645\u0631\u062d\u0628\u0627 " * 14_000,
    "special tokens": "</s> [SEP] <mask> " * 5_500,
    "one word": "x" * 100_000,
    "zero width": "\u200b" * 100_000,
}


def _cosine(encoder: Encoder, query: str, passage: str) -> float:
    return float(encoder.embed(query, "query").vector @ encoder.embed(passage, "passage").vector)


def test_vectors_have_length_one_and_the_manifests_dimension(e5: Encoder) -> None:
    """Of any text, an empty one too."""
    for text in ("Monstera", ""):
        vector = e5.embed(text, "query").vector
        assert vector.shape == (384,)
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


def test_cosines_lie_where_this_model_puts_them(e5: Encoder) -> None:
    """Between .70 and .95, and the passage that answers lies higher, across languages too."""
    question = "Wie oft muss ich die Monstera gießen?"
    answer = _cosine(e5, question, "Gieße die Monstera einmal pro Woche.")
    translated = _cosine(e5, question, "Water your monstera once a week.")
    other = _cosine(e5, question, "Der Bahnhof wird im Sommer umgebaut.")
    assert 0.70 < other < translated < answer < 0.95


def test_query_and_passage_are_different_texts(e5: Encoder) -> None:
    """The prefix is part of what is read."""
    assert not np.allclose(e5.embed("Monstera", "query").vector, e5.embed("Monstera", "passage").vector)


def test_token_vectors_are_those_of_the_text_alone(e5: Encoder) -> None:
    """No prefix, no marks."""
    tokens = e5.tokenize("Wasser", "query")
    vectors = e5.token_vectors(tokens)
    assert vectors.shape == (int(tokens.content.sum()), 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_the_cross_encoder_knows_its_famous_pair(minilm: CrossEncoder) -> None:
    """About 9.2 to 9.4 against below -4."""
    query = minilm.query(QUESTION)
    assert 9.2 < minilm.logit(minilm.pair(query, POPULATION)) < 9.5
    assert minilm.logit(minilm.pair(query, MUSEUM)) < -4


def test_a_score_is_a_function_of_the_pair(minilm: CrossEncoder) -> None:
    """The same alone and between others."""
    query = minilm.query(QUESTION)
    alone = minilm.logit(minilm.pair(query, POPULATION))
    for text in (MUSEUM, POPULATION * 20, "x"):
        minilm.logit(minilm.pair(query, text))
    assert minilm.logit(minilm.pair(query, POPULATION)) == alone


@pytest.mark.parametrize("text", list(HOSTILE.values()), ids=list(HOSTILE))
def test_no_text_breaks_the_models(e5: Encoder, minilm: CrossEncoder, text: str) -> None:
    """100 kB of what nobody should send, as query and as passage."""
    assert np.isfinite(e5.embed(text, "passage").vector).all()
    assert np.isfinite(minilm.logit(minilm.pair(minilm.query(text), text)))


def test_truncation_is_reported(e5: Encoder) -> None:
    """With the number of tokens that were read."""
    long = e5.embed("Wasser " * 2000, "passage")
    assert (long.truncated, long.tokens) == (True, 512)
    assert not e5.embed("Wasser", "passage").truncated


@pytest.mark.parametrize("model_id", ["multilingual-e5-small", "bge-small-en-v1.5", "ms-marco-minilm-l12-v2"])
def test_stored_scores_are_met_on_this_machine(model_id: str) -> None:
    """What `knowledge-models verify` does."""
    files = ensure(model_id)
    assert len(run_checks(files)) == len(files.spec.checks) >= 2
    require_checks(files)
