"""Both kinds of model: the arithmetic with numbers made by hand, the rest with real weights."""

import math
import time

import numpy as np
import pytest

from modelkit import Deadline, Encoder
from reranker.cache import PassageCache
from reranker.cost import CostModel
from reranker.model import Model
from reranker.outcome import Outcome
from reranker.scheduler import Scheduler
from reranker.scorer import LateInteractionScorer, Scorer, max_sim, sigmoid
from reranker.warmup import warm_up

QUESTION = "How many people live in Berlin?"
POPULATION = "Berlin has a population of 3,520,031 registered inhabitants in an area of 891.82 square kilometers."
MUSEUM = "New York City is famous for the Metropolitan Museum of Art."


class _Nobody:
    """Observes nothing."""

    def pairs(self, outcome: str, count: int) -> None:
        """Ignore it."""

    def run(self, seconds: float) -> None:
        """Ignore it."""

    def lookup(self, cache: str, result: str, count: int = 1) -> None:
        """Ignore it."""

    def of(self, model: str) -> "_Nobody":
        """The same."""
        return self


async def _rank(scorer: Scorer, query: str, documents: list[str], workers: int = 2) -> Outcome:
    scheduler = Scheduler(Model(scorer, CostModel(), _Nobody(), time.monotonic), workers, time.monotonic)
    try:
        return await scheduler.rank(query, documents, Deadline(time.monotonic() + 60, time.monotonic))
    finally:
        scheduler.close()


def test_max_sim_is_the_mean_of_the_best() -> None:
    """Two query tokens: one is met exactly, one half."""
    query = np.array([[1, 0], [0, 1]], np.float32)
    passage = np.array([[1, 0], [0.8660254, 0.5]], np.float32)
    assert max_sim(query, passage) == pytest.approx(0.75)


@pytest.mark.parametrize("sides", [(0, 2), (2, 0)])
def test_max_sim_of_nothing_is_no_number(sides: tuple[int, int]) -> None:
    """And so never becomes a score."""
    query, passage = (np.ones((side, 3), np.float32) for side in sides)
    assert math.isnan(max_sim(query, passage))


@pytest.mark.parametrize("logit", [-1000.0, -2.0, 0.0, 2.0, 1000.0])
def test_sigmoid_never_overflows(logit: float) -> None:
    """And is symmetric."""
    assert sigmoid(logit) + sigmoid(-logit) == pytest.approx(1.0)


@pytest.mark.models
async def test_the_cross_encoder_puts_the_answer_first(minilm: Scorer) -> None:
    """With the logits that this model is known for."""
    outcome = await _rank(minilm, QUESTION, [MUSEUM, POPULATION])
    museum, population = (scored.raw for scored in outcome.scored)
    assert 9.2 < population < 9.5
    assert museum < -4
    assert minilm.public(population) > 0.999
    assert minilm.logit(population) == population
    assert minilm.score_kind == "probability"


@pytest.mark.models
async def test_late_interaction_puts_german_passages_in_order(late_interaction: Scorer) -> None:
    """The one that answers, the one about the same plant, the one about something else."""
    documents = [
        "Der Zug nach Hamburg fährt heute von Gleis sieben ab.",
        "Die Monstera stammt aus den Regenwäldern Mittelamerikas.",
        "Gieße die Monstera etwa einmal pro Woche, im Winter seltener.",
    ]
    outcome = await _rank(late_interaction, "Wie oft muss ich die Monstera gießen?", documents)
    ranked = sorted(outcome.scored, key=lambda scored: -scored.raw)
    assert [scored.index for scored in ranked] == [2, 1, 0]
    assert all(0 < scored.raw < 1 for scored in ranked)
    assert late_interaction.logit(0.9) is None
    assert late_interaction.score_kind == "opaque"


@pytest.mark.models
@pytest.mark.parametrize("kind", ["minilm", "late_interaction"])
async def test_the_same_pair_scores_the_same_in_any_company(kind: str, request: pytest.FixtureRequest) -> None:
    """Alone, among others, on one worker or two: to the last bit."""
    scorer: Scorer = request.getfixturevalue(kind)
    alone = await _rank(scorer, QUESTION, [POPULATION])
    among = await _rank(scorer, QUESTION, [MUSEUM, POPULATION * 9, POPULATION, "x", POPULATION])
    single = await _rank(scorer, QUESTION, [POPULATION, MUSEUM], workers=1)
    expected = alone.scored[0].raw
    assert [among.scored[2].raw, among.scored[4].raw, single.scored[0].raw] == [expected] * 3


PASSAGES = [
    "Gieße die Monstera etwa einmal pro Woche, im Winter seltener.",
    "Die Monstera stammt aus den Regenwäldern Mittelamerikas.",
    "Water your monstera about once a week, less in winter.",
    "Zwischen dem Gießen darf die Erde der Monstera antrocknen.",
    "Der Zug nach Hamburg fährt heute von Gleis sieben ab.",
    POPULATION,
    MUSEUM,
]


@pytest.mark.models
def test_half_precision_changes_neither_score_nor_order(e5: Encoder) -> None:
    """Within 0.0002 of the score of the full vectors, where passages lie hundredths apart; known or not, to the last bit."""
    question = "Wie oft muss ich die Monstera gießen?"
    query = e5.token_vectors(e5.tokenize(question, "query"))
    full = [max_sim(query, e5.token_vectors(e5.tokenize(passage, "passage"))) for passage in PASSAGES]
    scorer = LateInteractionScorer(e5, PassageCache(1_000_000))
    first, again = ([bound.score(bound.pair(passage)) for passage in PASSAGES] for bound in (scorer.bind(question), scorer.bind(question)))
    assert first == again
    np.testing.assert_allclose(first, full, atol=2e-4)
    assert np.argsort(first).tolist() == np.argsort(full).tolist()


@pytest.mark.models
def test_known_passages_cost_one_run_of_the_query(e5: Encoder) -> None:
    """Fifteen passages for another question: the first pair runs the query, the others nothing."""
    scorer = LateInteractionScorer(e5, PassageCache(10_000_000))
    first = scorer.bind("Monstera?")
    passages = [f"{PASSAGES[0]} Nummer {n}." for n in range(15)]
    for passage in passages:
        first.score(first.pair(passage))
    second = scorer.bind("Wie viel Licht braucht sie?")
    pairs = [second.pair(passage) for passage in passages]
    runs = []
    for pair in pairs:
        runs.append(len(second.runs(pair)))
        second.score(pair)
    assert runs == [1] + [0] * 14
    unknown = second.pair("Niemand kennt diese.")
    assert second.runs(unknown) == (len(unknown.tokens),)


@pytest.mark.models
@pytest.mark.parametrize("kind", ["minilm", "late_interaction"])
async def test_hostile_texts_never_fail_a_request(kind: str, request: pytest.FixtureRequest) -> None:
    """Each is scored or named; the good one among them keeps its score."""
    scorer: Scorer = request.getfixturevalue(kind)
    hostile = [
        "\ud800\udfff" * 8000,
        "\x00" * 16_000,
        "\U0001f469\u200d\U0001f680" * 5000,
        "\u202e\u0645\u0631\u062d\u0628\u0627 " * 2000,
        "</s>" * 4000,
        "[SEP] [CLS] " * 1300,
        "\u200b" * 16_000,
        "x" * 16_000,
    ]
    outcome = await _rank(scorer, QUESTION, [*hostile, POPULATION])
    assert len(outcome.scored) + len(outcome.unscored) == len(hostile) + 1
    assert not outcome.missed("deadline")
    assert not outcome.missed("nan")
    assert all(math.isfinite(scored.raw) for scored in outcome.scored)
    best = max(outcome.scored, key=lambda scored: scored.raw)
    assert best.index == len(hostile)
    assert (await _rank(scorer, "\ud800</s>[SEP]\x00?", [POPULATION])).scored


@pytest.mark.models
@pytest.mark.parametrize("kind", ["minilm", "late_interaction"])
async def test_a_long_query_leaves_room_for_the_passage(kind: str, request: pytest.FixtureRequest) -> None:
    """It is cut, and every result says so."""
    scorer: Scorer = request.getfixturevalue(kind)
    outcome = await _rank(scorer, QUESTION * 130, [POPULATION, MUSEUM])
    assert all(scored.truncated for scored in outcome.scored)
    assert outcome.scored[0].raw != outcome.scored[1].raw


@pytest.mark.models
@pytest.mark.parametrize("kind", ["minilm", "late_interaction"])
def test_the_warm_up_teaches_what_runs_cost(kind: str, request: pytest.FixtureRequest) -> None:
    """Afterwards it knows this machine: short and long ones, from below a tenth of a second to what a long one may take."""
    cost = CostModel(1.0)
    warm_up(request.getfixturevalue(kind), cost, 2)
    assert 1e-4 < cost.usual_s(30) < 1
    assert 2 * cost.usual_s(30) < cost.usual_s(512) < 10
