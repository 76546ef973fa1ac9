"""The one path of a query. The invariants of the design are property tests here, each named for its invariant."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from knowledge.deadline import Deadline
from knowledge.errors import FallbackReason
from knowledge.identifiers import query_identifiers
from knowledge.models import (
    Answer,
    Degraded,
    Identity,
    Outcome,
    PartialReason,
    Query,
    Ranking,
    Record,
    Reranking,
    Result,
    Scope,
    SkipReason,
    Visibility,
)
from knowledge.pipeline import Pipeline
from services.knowledge.tests.corpora import corpora, identities, requests
from services.knowledge.tests.fakes import (
    FakeBackend,
    FakeClock,
    FakeEmbedder,
    FakeReranker,
    Script,
    failing,
    matches,
    overlap_score,
    record,
    reranking,
    score_all,
    sees,
)
from services.knowledge.tests.serving import CORPUS, READER, new_pipeline, new_stage, query, search

initial_ks = st.integers(1, 8)
VISIBLE = Visibility.of(READER)


def lists(answer: Answer) -> list[tuple[Result, ...]]:
    """The list of an answer, or the list of each scope."""
    return [scope.results for scope in answer.scopes] or [answer.results]


def ids(results: Sequence[Result]) -> list[str]:
    """Chunk ids in order."""
    return [result.candidate.passage.id for result in results]


def projected(answer: Answer) -> list[list[tuple[Any, ...]]]:
    """What the invariants look at: id, rank, hybrid rank and the scores of retrieval."""
    return [
        [
            (one.candidate.passage.id, one.rank, one.candidate.hybrid_rank, one.candidate.rrf, one.candidate.similarity, one.candidate.bm25)
            for one in results
        ]
        for results in lists(answer)
    ]


def run(
    records: Sequence[Record], asked: Query, reranker: FakeReranker | None, identity: Identity = READER, **given_settings: Any
) -> Answer:
    """One search over these records."""
    return asyncio.run(search(new_pipeline(FakeBackend(records), reranker, **given_settings), asked, identity))


def some_scored(query_text: str, documents: Sequence[str]) -> Reranking:
    """A provider that leaves out about half of the documents."""
    scores = {index: overlap_score(query_text, text) for index, text in enumerate(documents) if index % 2 or index == 0}
    left_out = [(index, "deadline") for index in range(len(documents)) if index not in scores]
    return reranking(scores, left_out)


scripts = st.sampled_from([score_all, some_scored])

SCRIPTS: Mapping[FallbackReason, Script] = {
    FallbackReason.DEADLINE: lambda *_: reranking({}, [(0, "deadline")]),
    FallbackReason.MALFORMED_RESPONSE: lambda _, documents: reranking({len(documents): 0.5}),
}


async def fallen_back(records: Sequence[Record], asked: Query, reason: FallbackReason, initial_k: int) -> Answer:
    """A search that ends with this fallback reason, brought about the way it comes about."""
    clock, reranker = FakeClock(), FakeReranker(SCRIPTS.get(reason) or failing(reason, 500))
    stage = new_stage(reranker, clock, reranker_initial_k=initial_k)
    pipeline = new_pipeline(FakeBackend(records), stage=stage, reranker_initial_k=initial_k)
    if reason is FallbackReason.CIRCUIT_OPEN:
        reranker.script = failing(FallbackReason.TRANSPORT)
        for _ in range(5):
            await stage.score("x", ["a", "b"], Deadline.after(30, clock))
    return await search(pipeline, asked, seconds=0.2 if reason is FallbackReason.TOO_LATE else 30.0, clock=clock)


@pytest.mark.parametrize("reason", list(FallbackReason))
@hypothesis_settings(max_examples=15)
@given(records=corpora(readable=True), asked=requests(), initial_k=initial_ks)
def test_invariant_the_fallback_list_is_the_list_without_reranking(
    reason: FallbackReason, records: list[Record], asked: Query, initial_k: int
) -> None:
    """For every fallback reason the lists equal those of the same request with `rerank: false`, and no rerank score is shown."""
    fallback = asyncio.run(fallen_back(records, asked, reason, initial_k))
    off = run(records, replace(asked, rerank=False), FakeReranker(), reranker_initial_k=initial_k)
    assert projected(fallback) == projected(off)
    assert fallback.ranking is Ranking.HYBRID
    assert all(result.rerank_score is None for results in lists(fallback) for result in results)
    if fallback.rerank.status is not Outcome.SKIPPED:
        assert (fallback.rerank.status, fallback.rerank.reason) == (Outcome.FALLBACK, reason)


@pytest.mark.parametrize("reason", list(FallbackReason))
async def test_every_fallback_reason_comes_about(reason: FallbackReason) -> None:
    """The property above really meets each reason: with two candidates the answer is a fallback that names it."""
    answer = await fallen_back([record("a"), record("b")], query(), reason, 15)
    assert (answer.rerank.status, answer.rerank.reason) == (Outcome.FALLBACK, reason)


@given(records=corpora(), asked=requests(), identity=identities, script=scripts, initial_k=initial_ks)
def test_invariant_length_is_the_smaller_of_top_k_and_hits(
    records: list[Record], asked: Query, identity: Identity, script: Script, initial_k: int
) -> None:
    """The budget and the reranker never change how many results come back."""
    answer = run(records, asked, FakeReranker(script), identity, reranker_initial_k=initial_k)
    for scope, results in zip(asked.scopes, lists(answer), strict=True):
        hits = [one for one in records if sees(Visibility.of(identity), one) and matches(one, scope.filters)]
        assert len(results) == min(scope.top_k, len(hits))
        assert [result.rank for result in results] == list(range(1, len(results) + 1))


@given(
    records=corpora(readable=True),
    asked=requests(),
    script=scripts,
    initial_k=initial_ks,
    top_ks=st.tuples(st.integers(1, 50), st.integers(1, 50)),
)
def test_invariant_the_shared_prefix_does_not_depend_on_top_k(
    records: list[Record], asked: Query, script: Script, initial_k: int, top_ks: tuple[int, int]
) -> None:
    """The same request with another `top_k` gives the same order as far as both lists reach."""

    def answer(top_k: int) -> Answer:
        scopes = tuple(replace(scope, top_k=top_k) for scope in asked.scopes)
        return run(records, replace(asked, top_k=top_k, scopes=scopes), FakeReranker(script), reranker_initial_k=initial_k)

    for one, other in zip(projected(answer(top_ks[0])), projected(answer(top_ks[1])), strict=True):
        shared = min(len(one), len(other))
        assert one[:shared] == other[:shared]


@given(records=corpora(), asked=requests(), identity=identities, script=scripts, initial_k=initial_ks)
def test_invariant_no_chunk_stands_twice_in_a_list(
    records: list[Record], asked: Query, identity: Identity, script: Script, initial_k: int
) -> None:
    """Legs and sub-queries may all find a chunk; each list shows it once. Two scopes may both show it."""
    answer = run(records, asked, FakeReranker(script), identity, reranker_initial_k=initial_k)
    for results in lists(answer):
        assert len(set(ids(results))) == len(results)


@given(records=corpora(), asked=requests(), identity=identities, script=scripts)
def test_invariant_no_chunk_outside_the_permission_filter(records: list[Record], asked: Query, identity: Identity, script: Script) -> None:
    """Whatever identity, permissions, filters, scopes and sub-queries: nothing hidden is shown or sent to the reranker."""
    reranker = FakeReranker(script)
    answer = run(records, asked, reranker, identity)
    by_id = {one.id: one for one in records}
    for scope, results in zip(asked.scopes, lists(answer), strict=True):
        for name in ids(results):
            assert sees(Visibility.of(identity), by_id[name])
            assert matches(by_id[name], scope.filters)
    seen = {one.text for one in records if sees(Visibility.of(identity), one)}
    assert {text for _, documents, _ in reranker.calls for text in documents} <= seen


@given(records=corpora(), asked=requests(), identity=identities)
def test_invariant_every_leg_carries_the_filter_of_the_identity(records: list[Record], asked: Query, identity: Identity) -> None:
    """No body leaves out the permission clause, whatever the request names; empty roles are a filter too."""
    backend = FakeBackend(records)
    asyncio.run(search(new_pipeline(backend), asked, identity))
    assert {body.visibility for bodies in backend.asked for body in bodies} == {
        Visibility(identity.tenant, identity.subject, identity.roles)
    }


@given(
    records=corpora(readable=True),
    asked=requests(),
    script=scripts,
    initial_k=initial_ks,
    max_chars=st.integers(1, 30),
    max_query=st.integers(1, 20),
)
def test_invariant_the_reranker_is_never_sent_more_than_the_budget(
    records: list[Record], asked: Query, script: Script, initial_k: int, max_chars: int, max_query: int
) -> None:
    """Pairs, characters a passage, characters in all and the query stay within their limits, with scopes too; one call at most."""
    reranker = FakeReranker(script)
    budget = initial_k * max_chars
    run(
        records,
        asked,
        reranker,
        reranker_initial_k=initial_k,
        reranker_max_document_chars=max_chars,
        reranker_max_query_chars=max_query,
        rerank_scored_chars_budget=budget,
    )
    assert len(reranker.calls) <= 1
    for sent_query, documents, _ in reranker.calls:
        assert len(documents) <= initial_k
        assert all(len(text) <= max_chars for text in documents)
        assert sum(map(len, documents)) <= budget
        assert len(sent_query) <= max_query
        assert asked.text.startswith(sent_query)


@given(records=corpora(readable=True), asked=requests(top_k=50), script=scripts, initial_k=initial_ks)
def test_invariant_reranking_only_reorders_the_head(records: list[Record], asked: Query, script: Script, initial_k: int) -> None:
    """The head before and after is the same set, the tail the same list."""
    on = run(records, asked, FakeReranker(script), reranker_initial_k=initial_k)
    off = run(records, replace(asked, rerank=False), FakeReranker(), reranker_initial_k=initial_k)
    reports = [scope.rerank for scope in on.scopes] or [on.rerank]
    for report, after, before in zip(reports, lists(on), lists(off), strict=True):
        head = report.candidates
        assert head <= initial_k
        assert set(ids(after[:head])) == set(ids(before[:head]))
        assert ids(after[head:]) == ids(before[head:])


@given(records=corpora(readable=True), asked=requests(), script=scripts, initial_k=initial_ks, rerank=st.booleans())
def test_invariant_strong_identifiers_form_tiers_before_and_after_reranking(
    records: list[Record], asked: Query, script: Script, initial_k: int, rerank: bool
) -> None:
    """A passage with more of the query's strong identifiers never stands below one with fewer, whatever the reranker says."""
    strong = set(query_identifiers((asked.text, *asked.sub_queries)).strong)
    answer = run(records, replace(asked, rerank=rerank), FakeReranker(script), reranker_initial_k=initial_k)
    for results in lists(answer):
        counts = [len(strong & set(result.candidate.passage.identifiers)) for result in results]
        assert counts == sorted(counts, reverse=True)
        for result, count in zip(results, counts, strict=True):
            assert len(strong & set(result.candidate.matched_identifiers)) == count


@given(records=corpora(readable=True), asked=requests(top_k=50, scoped=False), script=scripts, initial_k=initial_ks)
def test_invariant_scored_then_unscored_then_tail_inside_a_tier(
    records: list[Record], asked: Query, script: Script, initial_k: int
) -> None:
    """Within a tier: scored by (score desc, hybrid rank asc), then the unscored head, then the tail, both in hybrid order."""
    answer = run(records, asked, FakeReranker(script), reranker_initial_k=initial_k)
    strong = set(query_identifiers((asked.text, *asked.sub_queries)).strong)

    def place(result: Result) -> tuple[float, ...]:
        tier = -len(strong & set(result.candidate.passage.identifiers))
        tail = result.candidate.hybrid_rank > answer.rerank.candidates
        score = result.rerank_score
        return (tier, tail, score is None, -(score or 0.0), result.candidate.hybrid_rank)

    assert [place(result) for result in answer.results] == sorted(place(result) for result in answer.results)


def by_number(_: str, documents: Sequence[str]) -> Reranking:
    """The more light, the better: the reverse of the hybrid order of CORPUS."""
    return reranking([text.count("licht") / 20 for text in documents])


async def test_the_head_is_reordered_by_score_and_the_report_says_applied() -> None:
    """The best of the head comes first; `hybrid_rank` still says where it stood."""
    answer = await search(new_pipeline(FakeBackend(CORPUS), FakeReranker(by_number), reranker_initial_k=5), query(top_k=7))
    assert [result.candidate.hybrid_rank for result in answer.results] == [5, 4, 3, 2, 1, 6, 7]
    assert (answer.ranking, answer.rerank.status) == (Ranking.RERANKED, Outcome.APPLIED)
    assert (answer.rerank.candidates, answer.rerank.scored) == (5, 5)
    assert [result.rerank_score is not None for result in answer.results] == [True] * 5 + [False] * 2


async def test_a_partial_answer_is_partially_reranked() -> None:
    """What was scored comes first, the rest of the head in hybrid order, and ranking, status and reason say so."""
    script: Script = lambda *_: reranking({2: 0.1, 3: 0.9}, [(0, "deadline")])  # noqa: E731
    answer = await search(new_pipeline(FakeBackend(CORPUS), FakeReranker(script), reranker_initial_k=5), query(top_k=6))
    assert [result.candidate.hybrid_rank for result in answer.results] == [4, 3, 1, 2, 5, 6]
    assert answer.ranking is Ranking.PARTIALLY_RERANKED
    assert (answer.rerank.status, answer.rerank.reason, answer.rerank.scored) == (Outcome.PARTIAL, PartialReason.DEADLINE, 2)


async def test_equal_rerank_scores_keep_the_hybrid_order() -> None:
    """A reranker that cannot tell passages apart changes nothing."""
    script: Script = lambda _, documents: reranking([0.5] * len(documents))  # noqa: E731
    answer = await search(new_pipeline(FakeBackend(CORPUS), FakeReranker(script)), query(top_k=20))
    assert [result.candidate.hybrid_rank for result in answer.results] == list(range(1, 21))


async def test_the_reranker_gets_the_question_and_never_a_sub_query() -> None:
    """Sub-queries are searched; the original question is what passages are judged by."""
    reranker = FakeReranker()
    await search(new_pipeline(FakeBackend(CORPUS), reranker), query("die Frage", sub_queries=("wasser", "licht")))
    assert [asked for asked, _, _ in reranker.calls] == ["die Frage"]


async def test_the_reranker_reads_the_text_fields_and_the_caller_the_full_passage() -> None:
    """TEXT_FIELDS joined and cut go to the reranker; content comes back whole."""
    long = "wasser " * 200
    records = [record("a", long, title="Titel", metadata={"note": "Notiz"}), record("b", "wasser")]
    reranker = FakeReranker()
    pipeline = new_pipeline(FakeBackend(records), reranker, text_fields="title,note,content")
    answer = await search(pipeline, query())
    [(_, documents, _)] = reranker.calls
    whole = f"Titel\nNotiz\n{long}"
    assert whole[:500] in documents
    assert {result.candidate.passage.content for result in answer.results} == {long, "wasser"}


async def test_excerpts_end_at_a_grapheme() -> None:
    """A joined emoji at the limit is sent as a whole or not at all."""
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    reranker = FakeReranker()
    records = [record("a", "wasser " + family * 9), record("b", "wasser")]
    await search(new_pipeline(FakeBackend(records), reranker, reranker_max_document_chars=10, reranker_initial_k=2), query())
    assert sorted(reranker.calls[0][1]) == ["wasser", "wasser "]


async def test_rerank_depth_shortens_the_head() -> None:
    """`rerank_depth` below INITIAL_K sends fewer pairs."""
    reranker = FakeReranker(by_number)
    answer = await search(new_pipeline(FakeBackend(CORPUS), reranker), query(rerank_depth=3, top_k=5))
    assert len(reranker.calls[0][1]) == 3
    assert [result.candidate.hybrid_rank for result in answer.results] == [3, 2, 1, 4, 5]


@pytest.mark.parametrize(
    ("records", "asked", "given_settings", "reason"),
    [
        (CORPUS, query(rerank=False), {}, SkipReason.NOT_REQUESTED),
        (CORPUS, query(), {"reranker_enabled": False}, SkipReason.DISABLED),
        (CORPUS[:1], query(), {}, SkipReason.TOO_FEW_CANDIDATES),
        ([], query(), {}, SkipReason.NO_CANDIDATES),
        (CORPUS, query(rerank_depth=1), {}, SkipReason.TOO_FEW_CANDIDATES),
    ],
)
async def test_nothing_to_rerank_makes_not_one_call(
    records: list[Record], asked: Query, given_settings: dict[str, Any], reason: SkipReason
) -> None:
    """Each skip has its reason, the hybrid order, and no call."""
    reranker = FakeReranker()
    answer = await search(new_pipeline(FakeBackend(records), reranker, **given_settings), asked)
    assert (answer.rerank.status, answer.rerank.reason, answer.ranking) == (Outcome.SKIPPED, reason, Ranking.HYBRID)
    assert reranker.calls == []


async def test_without_a_provider_the_skip_is_not_configured() -> None:
    """An empty RERANKER_URL is no fault: the answer is hybrid and says why."""
    answer = await search(new_pipeline(FakeBackend(CORPUS), None), query())
    assert (answer.rerank.status, answer.rerank.reason) == (Outcome.SKIPPED, SkipReason.NOT_CONFIGURED)


async def test_scopes_share_one_call_and_a_shared_chunk_is_sent_once() -> None:
    """Two overlapping scopes make one call without a chunk twice; both show the chunk with its score, in request order."""
    records = [record("a", "wasser a1", category="x"), record("b", "wasser b1", category="y"), record("c", "wasser c1", category="x")]
    reranker = FakeReranker()
    scopes = (Scope("alle", (), 5, None), Scope("nur-x", (("category", ("x",)),), 5, None))
    answer = await search(new_pipeline(FakeBackend(records), reranker), query("wasser", scopes=scopes))
    [(_, documents, _)] = reranker.calls
    assert sorted(documents) == ["wasser a1", "wasser b1", "wasser c1"]
    assert [scope.name for scope in answer.scopes] == ["alle", "nur-x"]
    assert answer.results == ()
    both = [{result.candidate.passage.id: result.rerank_score for result in scope.results} for scope in answer.scopes]
    assert both[0]["a"] == both[1]["a"] is not None
    assert set(both[1]) == {"a", "c"}


async def test_a_partial_answer_is_fair_to_all_scopes() -> None:
    """Pairs go out in turn by hybrid rank, so a scored prefix holds the best of each scope."""
    records = [record(f"{kind}{number}", f"wasser {kind}{number}", category=kind) for kind in "xy" for number in range(5)]
    reranker = FakeReranker()
    scopes = tuple(Scope(kind, (("category", (kind,)),), 5, None) for kind in "xy")
    await search(new_pipeline(FakeBackend(records), reranker), query("wasser", scopes=scopes))
    [(_, documents, _)] = reranker.calls
    assert [text.split()[1][0] for text in documents] == ["x", "y"] * 5


async def test_a_score_from_another_scope_lifts_nothing_out_of_the_tail() -> None:
    """A chunk that was scored for one scope and stands in another one's tail stays there, without a score."""
    names = ("b1", "b2", "b3", "a1", "a2", "a3")
    records = [record(name, " ".join(["wasser"] * (6 - place) + ["licht"] * place), category=name[0]) for place, name in enumerate(names)]
    scopes = (Scope("nur-a", (("category", ("a",)),), 9, None), Scope("alle", (), 9, None))
    pipeline = new_pipeline(FakeBackend(records), FakeReranker(by_number), reranker_initial_k=4)
    answer = await search(pipeline, query("wasser", scopes=scopes))
    only_a, everything = answer.scopes
    assert [(scope.rerank.candidates, scope.rerank.scored) for scope in answer.scopes] == [(2, 2), (2, 2)]
    assert ids(only_a.results) == ["a2", "a1", "a3"]
    assert ids(everything.results) == ["b2", "b1", "b3", "a1", "a2", "a3"]
    assert [result.rerank_score is not None for result in everything.results] == [True, True, False, False, False, False]


async def test_each_scope_reports_its_own_candidates() -> None:
    """The scope that got fewer pairs says so; the report of the whole answer counts what was sent."""
    records = [record(f"{kind}{number}", f"wasser {kind}{number}", category=kind) for kind in "xy" for number in range(5)]
    scopes = (Scope("x", (("category", ("x",)),), 5, None), Scope("y", (("category", ("y",)),), 5, None))
    pipeline = new_pipeline(FakeBackend(records), FakeReranker(), reranker_initial_k=7)
    answer = await search(pipeline, query("wasser", scopes=scopes))
    assert [scope.rerank.candidates for scope in answer.scopes] == [4, 3]
    assert (answer.rerank.candidates, answer.rerank.scored) == (7, 7)


async def test_a_scope_without_candidates_was_not_reranked() -> None:
    """What was applied to another scope was not applied to an empty one."""
    scopes = (Scope("full", (), 5, None), Scope("empty", (("category", ("none",)),), 5, None))
    answer = await search(new_pipeline(FakeBackend([record("a"), record("b")]), FakeReranker()), query("wasser", scopes=scopes))
    assert [(scope.rerank.status, scope.rerank.reason) for scope in answer.scopes] == [
        (Outcome.APPLIED, None),
        (Outcome.SKIPPED, SkipReason.NO_CANDIDATES),
    ]


async def test_no_roles_is_said_and_only_own_passages_come_back() -> None:
    """Without roles nothing is visible but what names the subject, and the answer is marked."""
    records = [record("a"), record("b", allowed_roles=(), allowed_subjects=("ada",))]
    answer = await search(new_pipeline(FakeBackend(records)), query(), Identity("acme", "ada", frozenset()))
    assert ids(answer.results) == ["b"]
    assert answer.degraded == (Degraded.NO_PERMISSIONS,)


async def test_an_answer_without_vectors_is_still_reranked() -> None:
    """A dead embedding-service costs the vector leg, not the reranking."""
    embedder = FakeEmbedder()
    embedder.down = True
    answer = await search(new_pipeline(FakeBackend(CORPUS), FakeReranker(), embedder=embedder), query())
    assert answer.degraded == (Degraded.VECTOR,)
    assert answer.ranking is Ranking.RERANKED


async def test_warnings_are_said_once() -> None:
    """Two scopes with the same warning, and one that came with the query, give two lines."""
    embedder = FakeEmbedder()
    embedder.down = True
    scopes = (Scope("x", (), 5, 0.5), Scope("y", (), 5, 0.5))
    asked = query(scopes=scopes, warnings=("from the query",))
    answer = await search(new_pipeline(FakeBackend(CORPUS), embedder=embedder), asked)
    assert len(answer.warnings) == 2
    assert answer.warnings[0] == "from the query"


async def test_a_caller_that_goes_away_cancels_the_provider() -> None:
    """Cancelling the search cancels the call in flight; nothing is left running."""
    reranker = FakeReranker()
    reranker.hold = asyncio.Event()
    task = asyncio.create_task(search(new_pipeline(FakeBackend(CORPUS), reranker), query()))
    await reranker.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert reranker.cancelled


async def test_elapsed_time_is_measured_on_the_deadlines_clock() -> None:
    """`elapsed_ms` covers the whole search."""
    clock = FakeClock()

    def slowly(asked: str, documents: Sequence[str]) -> Reranking:
        clock.advance(0.5)
        return score_all(asked, documents)

    pipeline: Pipeline = new_pipeline(FakeBackend(CORPUS), FakeReranker(slowly), clock=clock)
    answer = await search(pipeline, query(), clock=clock)
    assert answer.elapsed_ms == answer.rerank.elapsed_ms == 500.0


def test_the_fake_backend_and_the_product_agree_on_the_permission_rule() -> None:
    """`Visibility.allows` says what the rule of these tests says, for every combination of tenant, roles and subjects."""
    for tenant in ("acme", "globex"):
        for roles in ((), ("reader",), ("editor",)):
            for subjects in ((), ("ada",), ("bob",)):
                one = record("a", tenant=tenant, allowed_roles=roles, allowed_subjects=subjects)
                assert VISIBLE.allows(tenant=tenant, allowed_roles=roles, allowed_subjects=subjects) is sees(VISIBLE, one)
