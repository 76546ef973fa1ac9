"""Receipts: what they say of legs, head, budget and time, that they agree with the answer, and that nothing hidden is in them."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given

from knowledge.api.answers import answer_body
from knowledge.errors import FallbackReason
from knowledge.explain import DEAF
from knowledge.models import Answer, Identity, Leg, Query, Record, Reranking, Scope, Visibility
from knowledge.receipt import Receipt
from services.knowledge.tests.corpora import ROLES, SUBJECTS, TENANTS, corpora, identities, requests
from services.knowledge.tests.fakes import FakeBackend, FakeClock, FakeEmbedder, FakeReranker, failing, record, reranking, score_all, sees
from services.knowledge.tests.serving import CORPUS, READER, new_pipeline, query, search
from services.knowledge.tests.test_pipeline import projected, scripts, some_scored

STAGES = ["embed", "retrieve", "fuse", "rerank", "merge"]


async def explained(
    records: Sequence[Record] = CORPUS, reranker: FakeReranker | None = None, asked: Query | None = None, **given_settings: Any
) -> tuple[Answer, Receipt]:
    """A search with `explain`, and its receipt."""
    pipeline = new_pipeline(FakeBackend(records), reranker or FakeReranker(), **given_settings)
    answer = await search(pipeline, replace(asked or query(), explain=True))
    assert answer.receipt is not None
    return answer, answer.receipt


def why(answer: Answer) -> dict[str, str]:
    """The reasons of each result, as one text, by id."""
    return {one.candidate.passage.id: " ".join(one.why) for results in answer.lists for one in results}


@given(records=corpora(), asked=requests(), identity=identities, script=scripts)
def test_no_passage_that_the_identity_may_not_see_is_in_a_receipt(
    records: list[Record], asked: Query, identity: Identity, script: Any
) -> None:
    """No id of another role's, tenant's or subject's passage, no permission, no filter: in the receipt and in every reason."""
    named = [replace(one, id=f"<{one.id}>", document_id=f"doc<{one.id}>") for one in records]
    pipeline = new_pipeline(FakeBackend(named), FakeReranker(script))
    answer = asyncio.run(search(pipeline, replace(asked, explain=True), identity))
    assert answer.receipt is not None
    text = json.dumps([asdict(answer.receipt), [one.why for results in answer.lists for one in results]])
    seen = {one.id for one in named if sees(Visibility.of(identity), one)}
    assert {one.id for one in named if one.id in text} <= seen
    for word in (*ROLES, *SUBJECTS, *TENANTS, "allowed", "tenant", "category", "http"):
        assert word not in text


@given(records=corpora(readable=True), asked=requests(), script=scripts)
def test_an_explained_answer_is_the_answer(records: list[Record], asked: Query, script: Any) -> None:
    """Asking why changes nothing of what is found, and without asking nothing is noted."""

    def answer(explain: bool) -> Answer:
        pipeline = new_pipeline(FakeBackend(records), FakeReranker(script))
        return asyncio.run(search(pipeline, replace(asked, explain=explain)))

    plain, told = answer(explain=False), answer(explain=True)
    assert projected(plain) == projected(told)
    assert (plain.receipt, DEAF.stages, DEAF.legs, DEAF.scopes, DEAF.sent) == (None, [], [], {}, {})
    assert all(one.why == () for results in plain.lists for one in results)
    assert "receipt" not in answer_body(plain, trace_id="", explain=False)


@given(records=corpora(readable=True), asked=requests(), script=scripts)
def test_a_receipt_agrees_with_its_answer(records: list[Record], asked: Query, script: Any) -> None:
    """Ranks, scores and moves of the head are those of the results; every result was in a leg; every passage has its reasons."""
    pipeline = new_pipeline(FakeBackend(records), FakeReranker(script))
    answer = asyncio.run(search(pipeline, replace(asked, explain=True)))
    receipt = answer.receipt
    assert receipt is not None
    lines = {(line.scope, line.id): line for line in receipt.head}
    for scope, results in zip(asked.scopes, answer.lists, strict=True):
        for one in results:
            line = lines.get((scope.name, one.candidate.passage.id))
            if line is not None:
                assert (line.hybrid_rank, line.rank_after, line.rerank) == (one.candidate.hybrid_rank, one.rank, one.rerank_score)
                assert line.moved == line.hybrid_rank - line.rank_after
            assert any("leg found it at rank" in reason for reason in one.why)
    assert len(receipt.head) == sum(report.candidates for report in [scope.rerank for scope in answer.scopes] or [answer.rerank])


async def test_the_stages_are_a_waterfall_against_the_deadline() -> None:
    """In the order in which they ran, each with its start, its length and the time that was left when it began."""
    clock = FakeClock()

    class SlowEmbedder(FakeEmbedder):
        async def embed(self, *given_arguments: Any) -> Any:
            clock.advance(0.1)
            return await super().embed(*given_arguments)

    class SlowBackend(FakeBackend):
        async def msearch(self, *given_arguments: Any) -> Any:
            clock.advance(0.2)
            return await super().msearch(*given_arguments)

    def slowly(asked: str, documents: Sequence[str]) -> Reranking:
        clock.advance(1.5)
        return score_all(asked, documents)

    pipeline = new_pipeline(SlowBackend(CORPUS), FakeReranker(slowly), clock=clock, embedder=SlowEmbedder())
    answer = await search(pipeline, query(explain=True), clock=clock, seconds=8.0)
    assert answer.receipt is not None
    assert answer.receipt.deadline_ms == 8000.0
    assert [(one.name, one.start_ms, one.elapsed_ms, one.left_ms) for one in answer.receipt.stages] == [
        ("embed", 0.0, 100.0, 8000.0),
        ("retrieve", 100.0, 200.0, 7900.0),
        ("fuse", 300.0, 0.0, 7700.0),
        ("rerank", 300.0, 1500.0, 7700.0),
        ("merge", 1800.0, 0.0, 6200.0),
    ]


async def test_the_legs_say_what_they_found_and_what_it_weighed() -> None:
    """One line a leg and sub-query; at most ten passages of each, at the ranks that fusion counted; the constants beside them."""
    answer, receipt = await explained(asked=query("x", sub_queries=("wasser", "licht pH")), rrf_k=7)
    assert [(leg.leg, leg.sub_query) for leg in receipt.legs] == [
        ("lexical", 0),
        ("vector", 0),
        ("identifier", 0),
        ("lexical", 1),
        ("vector", 1),
    ]
    lexical = receipt.legs[0]
    assert (lexical.hits, len(lexical.top), lexical.failed, lexical.below_floor) == (20, 10, False, 0)
    assert [(one.id, one.rank) for one in lexical.top][:2] == [("00", 1), ("01", 2)]
    assert (receipt.fusion.rrf_k, set(receipt.fusion.weights)) == (7, {"lexical", "vector", "identifier"})
    assert "The lexical leg found it at rank 1 for sub-query 0." in why(answer)["00"]
    first = answer.results[0].candidate
    terms = [leg.weight * leg.factor / (2 * (7 + one.rank)) for leg in receipt.legs for one in leg.top if one.id == first.passage.id]
    assert sum(terms) <= first.rrf + 1e-9


async def test_a_leg_that_failed_is_told_also_where_it_was_the_last() -> None:
    """With the flags of what went wrong."""
    backend = FakeBackend(CORPUS)
    backend.failed, backend.timed_out = {Leg.VECTOR}, {Leg.LEXICAL}
    answer = await search(new_pipeline(backend, FakeReranker()), query(explain=True))
    assert answer.receipt is not None
    assert [(leg.leg, leg.failed, leg.timed_out, leg.hits) for leg in answer.receipt.legs] == [
        ("lexical", False, True, 20),
        ("vector", True, False, 0),
    ]
    backend = FakeBackend([record("a", category="x"), record("b", category="x")])
    backend.failed_scope = ("y",)
    scopes = (Scope("x", (("category", ("x",)),), 5, None), Scope("y", (("category", ("y",)),), 5, None))
    answer = await search(new_pipeline(backend, FakeReranker()), query(scopes=scopes, explain=True))
    assert answer.receipt is not None
    assert [(leg.scope, leg.failed) for leg in answer.receipt.legs] == [("x", False), ("x", False), ("y", True), ("y", True)]


async def test_the_budget_says_what_was_sent_in_characters() -> None:
    """Passages, characters of all and of each, of the question; nothing of it exceeds the budget."""
    reranker = FakeReranker()
    _, receipt = await explained(reranker=reranker, reranker_max_document_chars=20, reranker_initial_k=4, rerank_scored_chars_budget=100)
    [(question, documents, _)] = reranker.calls
    budget = receipt.budget
    assert (budget.initial_k, budget.max_document_chars, budget.budget_chars) == (4, 20, 100)
    assert (budget.sent_documents, budget.sent_chars, budget.query_chars) == (4, sum(map(len, documents)), len(question))
    assert [line.chars_sent for line in receipt.head] == [len(text) for text in documents]


@pytest.mark.parametrize("seconds", [0.2, 30.0])
async def test_on_a_fallback_the_receipt_says_what_was_sent_all_the_same(seconds: float) -> None:
    """Nothing where nobody was asked (`too_late`), the whole head where the provider failed; each reason names the fallback."""
    pipeline = new_pipeline(FakeBackend(CORPUS), FakeReranker(failing(FallbackReason.TRANSPORT)))
    answer = await search(pipeline, query(explain=True), seconds=seconds)
    assert answer.receipt is not None
    reason, sent = ("too_late", 0) if seconds < 1 else ("transport", 15)
    assert (answer.rerank.reason, answer.receipt.budget.sent_documents, len(answer.receipt.head)) == (reason, sent, 15)
    assert [stage.name for stage in answer.receipt.stages] == STAGES
    assert all(line.moved == 0 and line.rerank is None for line in answer.receipt.head)
    assert all(f"Reranking fell back ({reason})" in text for text in why(answer).values())


async def test_without_reranking_there_is_no_rerank_stage() -> None:
    """And the reasons say why."""
    answer, receipt = await explained(asked=query(rerank=False))
    assert [stage.name for stage in receipt.stages] == ["embed", "retrieve", "fuse", "merge"]
    assert receipt.budget.sent_documents == receipt.budget.query_chars == 0
    assert all("Reranking was skipped (not_requested)" in text for text in why(answer).values())


async def test_moves_scores_and_what_was_not_scored_are_reasons() -> None:
    """From where to where, with the score; unscored ones behind; the tail was not sent."""
    script: Any = lambda *_: reranking({2: 0.125, 3: 0.9375}, [(0, "deadline")])  # noqa: E731
    answer, _ = await explained(reranker=FakeReranker(script), asked=query(top_k=6), reranker_initial_k=5)
    reasons = why(answer)
    assert "Reranking scored it 0.938; it moved from 4 to 1." in reasons["03"]
    assert "Reranking gave it no score; it moved from 1 to 3, behind those that have one." in reasons["00"]
    assert "It stands behind the 5 passages that were reranked; it stayed at 6." in reasons["05"]


async def test_identifiers_are_reasons() -> None:
    """Strong ones with the tier that they form, soft ones by name."""
    records = [record("a", "wasser POL-55012"), record("b", "wasser pH")]
    answer, receipt = await explained(records, asked=query("POL-55012 pH wasser"))
    assert (receipt.identifiers.strong, receipt.identifiers.soft) == (("pol-55012",), ("ph",))
    assert "It holds pol-55012, 1 of 1 strong identifiers of the question" in why(answer)["a"]
    assert "It holds ph, which the question names too." in why(answer)["b"]
    assert "The identifier leg found it" in why(answer)["b"]


async def test_the_floor_is_a_reason() -> None:
    """Below it the vector leg does not count; a strong identifier exempts."""
    records = [record("a", "wasser"), record("b", "wasser licht licht licht gelb"), record("c", "gelb gelb blatt POL-55012")]
    answer, receipt = await explained(records, asked=query("wasser POL-55012", min_similarity=0.95))
    [vector] = [leg for leg in receipt.legs if leg.leg == "vector"]
    assert vector.below_floor >= 1
    assert "Its similarity is below the floor of 0.95, so the vector leg does not count for it." in why(answer)["b"]
    assert "the strong identifier exempts it" in why(answer)["c"]


async def test_the_prior_is_a_reason() -> None:
    """Where it was asked for."""
    records = [record("a", "wasser", importance=0.25), record("b", "wasser")]
    answer, _ = await explained(records, asked=query(use_importance=True))
    assert "That leg is ordered by similarity times importance, which is 0.25 here." in why(answer)["a"]
    answer, _ = await explained(records)
    assert "importance" not in why(answer)["a"]


async def test_each_scope_has_its_legs_its_head_and_its_reasons() -> None:
    """A chunk of two scopes is explained in both, and sent once."""
    records = [record("a", "wasser a1", category="x"), record("b", "wasser b1", category="y"), record("c", "wasser c1", category="x")]
    scopes = (Scope("all", (), 5, None), Scope("only-x", (("category", ("x",)),), 5, None))
    answer, receipt = await explained(records, asked=query("wasser", scopes=scopes))
    assert {(leg.scope, leg.leg) for leg in receipt.legs} == {(name, leg) for name in ("all", "only-x") for leg in ("lexical", "vector")}
    assert sorted((line.scope, line.id) for line in receipt.head) == [
        ("all", "a"),
        ("all", "b"),
        ("all", "c"),
        ("only-x", "a"),
        ("only-x", "c"),
    ]
    assert receipt.budget.sent_documents == 3
    assert all(one.why for scope in answer.scopes for one in scope.results)


async def test_the_body_has_the_documented_members() -> None:
    """What other programs read: names are a contract."""
    answer, _ = await explained(reranker=FakeReranker(some_scored), asked=query("wasser POL-55012"))
    body = answer_body(answer, trace_id="t", explain=True)
    shape: Mapping[str, set[str]] = {
        "stages": {"name", "start_ms", "elapsed_ms", "left_ms"},
        "legs": {"scope", "sub_query", "leg", "hits", "below_floor", "failed", "timed_out", "shards_failed", "weight", "factor", "top"},
        "head": {"scope", "id", "hybrid_rank", "rank_after", "chars_sent", "rerank", "moved"},
    }
    receipt = body["receipt"]
    assert set(receipt) == {"deadline_ms", "fusion", "budget", "identifiers", *shape}
    for name, members in shape.items():
        assert set(receipt[name][0]) == members
    assert set(receipt["legs"][0]["top"][0]) == {"id", "rank", "score"}
    assert set(body["results"][0]["explain"]) == {"fusion_terms", "importance", "why"}


def test_the_reader_of_these_tests_sees_the_corpus() -> None:
    """A guard: were nothing visible, most tests above would say nothing."""
    assert all(sees(Visibility.of(READER), one) for one in CORPUS)
