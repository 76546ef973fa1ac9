"""Retrieve: one embedding, one multi-search, the permission filter in every leg; floors, prior and degradation before fusion."""

import asyncio

import pytest

from knowledge.deadline import Deadline
from knowledge.errors import DeadlineExceeded, EmbeddingError, SearchUnavailable
from knowledge.models import Degraded, Leg, Query, Scope, Visibility
from knowledge.retrieve import NO_FLOOR_WARNING, Retriever, ScopeHybrid
from services.knowledge.tests.fakes import FakeBackend, FakeClock, FakeEmbedder, cosine, embedding_of, record
from services.knowledge.tests.serving import INSTRUMENTS, query, settings

VISIBILITY = Visibility("acme", "ada", frozenset({"reader"}))


def retriever(backend: FakeBackend, embedder: FakeEmbedder | None = None, **given: object) -> Retriever:
    """A retriever over fakes."""
    chosen = settings(**given)
    return Retriever(
        backend,
        embedder or FakeEmbedder(),
        search=chosen.search,
        time=chosen.time,
        initial_k=chosen.reranker.reranker_initial_k,
        metrics=INSTRUMENTS,
    )


async def hybrids(backend: FakeBackend, asked: Query, embedder: FakeEmbedder | None = None, **given: object) -> list[ScopeHybrid]:
    """The hybrid lists for a reader of acme."""
    return await retriever(backend, embedder, **given).retrieve(asked, VISIBILITY, Deadline.after(30, FakeClock()))


def ids(hybrid: ScopeHybrid) -> list[str]:
    """The chunk ids in order."""
    return [candidate.passage.id for candidate in hybrid.candidates]


async def test_all_sub_queries_are_embedded_in_one_call() -> None:
    """One call of kind `query` for all texts that are searched; the question itself is not among them then."""
    embedder = FakeEmbedder()
    await hybrids(FakeBackend([record("a")]), query("frage", sub_queries=("eins", "zwei")), embedder)
    assert [(texts, kind) for texts, kind, _ in embedder.calls] == [(("eins", "zwei"), "query")]


async def test_one_multi_search_holds_every_body() -> None:
    """Two scopes and two sub-queries make one call with a lexical and a vector body each, plus an identifier body a scope."""
    backend = FakeBackend([record("a")])
    scopes = (Scope("x", (), 5, None), Scope("y", (("language", ("de",)),), 5, None))
    await hybrids(backend, query("POL-55012", sub_queries=("eins", "zwei"), scopes=scopes))
    [bodies] = backend.asked
    assert len([one for one in bodies if one.leg is Leg.LEXICAL]) == 4
    assert len([one for one in bodies if one.leg is Leg.VECTOR]) == 4
    assert len([one for one in bodies if one.leg is Leg.IDENTIFIER]) == 2
    assert [one.text for one in bodies if one.leg is Leg.LEXICAL] == ["eins", "zwei", "eins", "zwei"]


async def test_no_identifier_body_without_an_identifier() -> None:
    """The third leg is asked only when the extractor finds something."""
    backend = FakeBackend([record("a")])
    await hybrids(backend, query("wasser"))
    assert [one.leg for one in backend.asked[0]] == [Leg.LEXICAL, Leg.VECTOR]


async def test_the_permission_filter_stands_in_every_body() -> None:
    """Each leg carries the visibility that came in, and the scope's filters, unchanged."""
    backend = FakeBackend([record("a")])
    filters = (("category", ("pflege",)),)
    await hybrids(backend, query("POL-55012 pH", filters=filters))
    assert {one.leg for one in backend.asked[0]} == set(Leg)
    assert all(one.visibility == VISIBILITY and one.filters == filters for one in backend.asked[0])


@pytest.mark.parametrize(("top_k", "initial_k", "depth", "expected"), [(5, 15, 50, 50), (50, 60, 50, 60), (5, 5, 80, 80)])
async def test_the_depth_of_a_leg_is_the_largest_of_three(top_k: int, initial_k: int, depth: int, expected: int) -> None:
    """Each leg goes as deep as RETRIEVAL_DEPTH, INITIAL_K and top_k, whichever is most."""
    backend = FakeBackend([record("a")])
    await hybrids(backend, query(top_k=top_k), reranker_initial_k=initial_k, retrieval_depth=depth, reranker_max_document_chars=100)
    assert {one.size for one in backend.asked[0]} == {expected}


async def test_top_k_above_the_retrieval_depth_is_not_cut_short() -> None:
    """Fifty results come back when fifty exist, and the candidates reach as far as top_k."""
    backend = FakeBackend([record(f"{number:03}") for number in range(70)])
    [hybrid] = await hybrids(backend, query(top_k=50))
    assert len(hybrid.candidates) == 50


async def test_candidates_reach_as_far_as_initial_k_for_a_small_top_k() -> None:
    """With top_k 1 there are still INITIAL_K candidates to rerank."""
    backend = FakeBackend([record(f"{number:03}") for number in range(30)])
    [hybrid] = await hybrids(backend, query(top_k=1))
    assert len(hybrid.candidates) == 15
    assert [candidate.hybrid_rank for candidate in hybrid.candidates] == list(range(1, 16))


@pytest.mark.parametrize("how", ["down", "fails", "hangs"])
async def test_a_failed_embedding_leaves_the_lexical_leg(how: str) -> None:
    """Whether it fails or is late, the lexical leg answers, there is no vector body, and the answer says so."""
    embedder, backend = FakeEmbedder(), FakeBackend([record("a", "wasser"), record("b", "licht")])
    embedder.down, embedder.hang = how == "down", how == "hangs"
    embedder.failures = [EmbeddingError("http_503")] if how == "fails" else []
    [hybrid] = await hybrids(backend, query("wasser"), embedder, embedding_timeout_s=0.01)
    assert ids(hybrid) == ["a"]
    assert hybrid.degraded == (Degraded.VECTOR,)
    assert [one.leg for one in backend.asked[0]] == [Leg.LEXICAL]


async def test_embedding_gets_the_smaller_of_its_cap_and_a_share_of_the_time_left() -> None:
    """A short deadline is not spent on embedding alone: the lexical leg keeps time to answer."""
    embedder, clock = FakeEmbedder(), FakeClock()
    await retriever(FakeBackend(), embedder).retrieve(query(), VISIBILITY, Deadline.after(1.0, clock))
    await retriever(FakeBackend(), embedder).retrieve(query(), VISIBILITY, Deadline.after(30.0, clock))
    assert embedder.calls[0][2] < 1.0
    assert embedder.calls[1][2] == 5.0


@pytest.mark.parametrize("leg", list(Leg))
async def test_a_failed_leg_is_named_and_the_others_answer(leg: Leg) -> None:
    """An item with an error kills that leg alone."""
    backend = FakeBackend([record("a", "POL-55012 wasser")])
    backend.failed = {leg}
    [hybrid] = await hybrids(backend, query("POL-55012 wasser"))
    assert ids(hybrid) == ["a"]
    assert hybrid.degraded == (Degraded(leg.value),)


@pytest.mark.parametrize(("field", "word"), [("timed_out", Degraded.TIMED_OUT), ("shards_failed", Degraded.SHARDS)])
async def test_late_or_broken_shards_keep_their_hits(field: str, word: Degraded) -> None:
    """`timed_out` and failed shards keep what was found and mark the answer."""
    backend = FakeBackend([record("a")])
    setattr(backend, field, {Leg.LEXICAL})
    [hybrid] = await hybrids(backend, query())
    assert ids(hybrid) == ["a"]
    assert hybrid.degraded == (word,)
    assert hybrid.candidates[0].bm25 is not None


async def test_both_legs_dead_is_search_unavailable() -> None:
    """Without a lexical and a vector answer there is nothing to serve, even if identifiers were found."""
    backend = FakeBackend([record("a", "POL-55012")])
    backend.failed = {Leg.LEXICAL, Leg.VECTOR}
    with pytest.raises(SearchUnavailable):
        await hybrids(backend, query("POL-55012"))


async def test_a_backend_that_is_down_is_search_unavailable() -> None:
    """A backend that cannot be asked at all is a 503 while there is time left."""
    backend = FakeBackend()
    backend.down = True
    with pytest.raises(SearchUnavailable):
        await hybrids(backend, query())


async def test_a_late_backend_is_search_unavailable_while_time_is_left() -> None:
    """RETRIEVAL_TIMEOUT_S ends the multi-search; the caller's own time is not over."""
    backend = FakeBackend([record("a")])
    backend.hold = asyncio.Event()
    with pytest.raises(SearchUnavailable):
        await hybrids(backend, query(), retrieval_timeout_s=0.01)


async def test_a_late_backend_is_deadline_exceeded_when_the_time_is_gone() -> None:
    """If the request's own time ran out before any leg answered, that is what the caller hears."""
    clock, backend = FakeClock(), FakeBackend([record("a")])
    backend.hold = asyncio.Event()
    deadline = Deadline.after(0.02, clock)
    task = asyncio.create_task(retriever(backend).retrieve(query(), VISIBILITY, deadline))
    await backend.searching.wait()
    clock.advance(0.02)
    with pytest.raises(DeadlineExceeded):
        await task


async def test_one_failed_scope_leaves_the_others() -> None:
    """A scope whose legs all failed is empty and degraded; the other one answers in full."""
    backend = FakeBackend([record("a", category="x"), record("b", category="y")])
    backend.failed_scope = ("x",)
    scopes = (Scope("one", (("category", ("x",)),), 5, None), Scope("two", (("category", ("y",)),), 5, None))
    one, two = await hybrids(backend, query(scopes=scopes))
    assert (ids(one), set(one.degraded)) == ([], {Degraded.LEXICAL, Degraded.VECTOR})
    assert (ids(two), two.degraded) == (["b"], ())


async def test_the_floor_is_raw_cosine_and_takes_hits_out_of_the_vector_leg() -> None:
    """Below the floor a vector hit goes; what the lexical leg found stays, without a similarity."""
    backend = FakeBackend([record("near", "wasser"), record("far", "licht"), record("words", "wasser licht sonne erde topf")])
    floor = (1 + cosine(embedding_of("wasser"), embedding_of("wasser licht sonne erde topf"))) / 2
    [hybrid] = await hybrids(backend, query("wasser", min_similarity=floor))
    found = {candidate.passage.id: candidate for candidate in hybrid.candidates}
    assert set(found) == {"near", "words"}
    assert found["words"].similarity is None
    assert found["near"].similarity == pytest.approx(1.0)


async def test_a_hit_exactly_at_the_floor_stays() -> None:
    """The floor itself is allowed."""
    floor = cosine(embedding_of("wasser"), embedding_of("licht"))
    [hybrid] = await hybrids(FakeBackend([record("at", "licht")]), query("wasser", min_similarity=floor))
    assert ids(hybrid) == ["at"]


async def test_a_lexical_hit_exactly_at_the_floor_stays_in_mode_all() -> None:
    """It keeps both of its scores."""
    floor = cosine(embedding_of("wasser"), embedding_of("wasser licht"))
    [hybrid] = await hybrids(
        FakeBackend([record("at", "wasser licht")]), query("wasser", min_similarity=floor, drop_lexical_below_floor=True)
    )
    assert [(one.bm25, one.similarity) for one in hybrid.candidates] == [(1.0, floor)]


async def test_mode_all_also_drops_lexical_hits_below_the_floor() -> None:
    """With `min_similarity_mode: all` a passage that only the words found does not come back."""
    backend = FakeBackend([record("near", "wasser"), record("words", "wasser licht sonne erde topf")])
    [hybrid] = await hybrids(backend, query("wasser", min_similarity=0.9, drop_lexical_below_floor=True))
    assert ids(hybrid) == ["near"]


@pytest.mark.parametrize("drop", [False, True])
async def test_strong_identifier_hits_are_exempt_from_the_floor(drop: bool) -> None:
    """A passage with the code that was asked for stays, however unlike the rest of its text is; a soft term does not help."""
    backend = FakeBackend([record("code", "POL-55012 licht sonne erde topf"), record("soft", "pH licht sonne erde topf")])
    [hybrid] = await hybrids(backend, query("POL-55012 pH", min_similarity=0.99, drop_lexical_below_floor=drop))
    assert "code" in ids(hybrid)
    assert ("soft" in ids(hybrid)) is not drop


async def test_there_is_no_floor_while_the_vector_leg_is_degraded() -> None:
    """Without vectors nothing is dropped for its similarity, and a warning says so."""
    embedder, backend = FakeEmbedder(), FakeBackend([record("a", "wasser licht sonne erde topf")])
    embedder.down = True
    [hybrid] = await hybrids(backend, query("wasser", min_similarity=0.99, drop_lexical_below_floor=True), embedder)
    assert ids(hybrid) == ["a"]
    assert hybrid.warnings == (NO_FLOOR_WARNING,)


async def test_importance_reorders_the_vector_leg_only_when_switched_on() -> None:
    """Off: by cosine. On: by cosine x importance; the similarity that is shown stays raw."""
    backend = FakeBackend([record("a", "wasser", importance=0.1), record("b", "wasser licht", importance=1.0)])
    backend.failed = {Leg.LEXICAL}
    [off] = await hybrids(backend, query("wasser"))
    [on] = await hybrids(backend, query("wasser", use_importance=True))
    assert (ids(off), ids(on)) == (["a", "b"], ["b", "a"])
    assert {c.passage.id: c.similarity for c in off.candidates} == {c.passage.id: c.similarity for c in on.candidates}


async def test_the_floor_comes_before_importance() -> None:
    """The floor looks at the raw cosine: a passage of little importance is not dropped for it."""
    backend = FakeBackend([record("a", "wasser", importance=0.1)])
    backend.failed = {Leg.LEXICAL}
    [hybrid] = await hybrids(backend, query("wasser", min_similarity=0.9, use_importance=True))
    assert ids(hybrid) == ["a"]


async def test_more_strong_identifiers_form_a_higher_tier() -> None:
    """The passage with the code stands above passages that both other legs prefer, and says which code it matched."""
    backend = FakeBackend(
        [
            record("wrong", "POL-55021 Schaden melden Schaden melden"),
            record("right", "POL-55012 licht sonne erde"),
            record("none", "Schaden melden"),
        ]
    )
    [hybrid] = await hybrids(backend, query("Schaden melden POL-55012"))
    assert ids(hybrid)[0] == "right"
    assert hybrid.candidates[0].matched_identifiers == ("pol-55012",)
    assert hybrid.candidates[0].hybrid_rank == 1


async def test_soft_terms_add_a_leg_but_no_tier() -> None:
    """A passage with `pH` gets one more fusion term, yet a passage that both legs put first keeps its place."""
    backend = FakeBackend([record("best", "wasser wasser"), record("soft", "pH licht sonne erde topf regen")])
    [hybrid] = await hybrids(backend, query("wasser pH"), identifier_weight=0.01)
    assert ids(hybrid) == ["best", "soft"]
    soft = hybrid.candidates[1]
    assert soft.matched_identifiers == ("ph",)
    assert "identifier:0" in soft.terms


async def test_language_goes_to_the_legs_and_filters_nothing() -> None:
    """`language` chooses fields and analyzers in the backend; passages of other languages still come back."""
    backend = FakeBackend([record("de", language="de"), record("en", language="en")])
    [hybrid] = await hybrids(backend, query(language="de"))
    assert set(ids(hybrid)) == {"de", "en"}
    assert backend.asked[0][0].language == "de"
    assert backend.asked[0][0].filters == ()


LONG = "wasser licht sonne erde topf regen"


async def lexical_terms(backend: FakeBackend, asked: Query, embedder: FakeEmbedder | None = None, **given: object) -> dict[str, float]:
    """The lexical terms of the passage `a`, times 61: the weights, as it is the best of each list."""
    [hybrid] = await hybrids(backend, asked, embedder, **{"lexical_weight": 0.1, **given})
    [best] = [candidate for candidate in hybrid.candidates if candidate.passage.id == "a"]
    return {name: round(term * 61, 9) for name, term in best.terms.items() if name.startswith("lexical")}


async def test_shared_words_raise_the_weight_of_the_lexical_leg() -> None:
    """Four words make six pairs, two make one; the maximum ends it, and one at the weight switches it off."""
    backend = FakeBackend([record("a", LONG), record("b", "wind")])
    assert await lexical_terms(backend, query("wasser licht")) == {"lexical:0": 0.1}
    assert await lexical_terms(backend, query("wasser licht sonne erde")) == {"lexical:0": 0.6}
    assert await lexical_terms(backend, query("wasser licht sonne erde"), lexical_weight_max=0.2) == {"lexical:0": 0.2}
    assert await lexical_terms(backend, query("wasser licht sonne erde"), lexical_weight_max=0.1) == {"lexical:0": 0.1}


async def test_the_title_and_the_configured_fields_count_as_text_of_the_passage() -> None:
    """Shared words are looked for in what the lexical leg searches."""
    backend = FakeBackend([record("a", LONG, title="wasser licht", content="sonne erde")])
    assert await lexical_terms(backend, query("wasser licht sonne erde")) == {"lexical:0": 0.6}
    assert await lexical_terms(backend, query("wasser licht sonne erde"), text_fields=("content",)) == {"lexical:0": 0.1}


async def test_each_sub_query_has_its_own_shared_words() -> None:
    """The long sub-query's list weighs more, the short one's does not."""
    backend = FakeBackend([record("a", LONG)])
    terms = await lexical_terms(backend, query("frage", sub_queries=("wasser", LONG)))
    assert terms == {"lexical:0": 0.05, "lexical:1": 0.5}


async def test_without_a_vector_leg_shared_words_change_nothing() -> None:
    """There is nothing to weigh the lexical leg against."""
    embedder, backend = FakeEmbedder(), FakeBackend([record("a", LONG)])
    embedder.down = True
    assert await lexical_terms(backend, query(LONG), embedder) == {"lexical:0": 0.1}


async def test_a_lexical_leg_without_hits_leaves_the_order_of_the_vector_leg() -> None:
    """An empty or failed list has no best passage to look at."""
    backend = FakeBackend([record("a", LONG), record("b", "wasser wind")])
    backend.failed = {Leg.LEXICAL}
    [hybrid] = await hybrids(backend, query(LONG))
    assert ids(hybrid) == ["a", "b"]


@pytest.mark.parametrize("floor", [None, 0.999])
async def test_shared_words_are_counted_before_the_floor(floor: float | None) -> None:
    """The floor takes the best lexical passage out, and the others weigh what they weighed."""
    backend = FakeBackend([record("a", f"{LONG} " * 3, vector=embedding_of("fern")), record("b", "wasser licht sonne erde topf")])
    asked = query("wasser licht sonne erde topf", min_similarity=floor, drop_lexical_below_floor=True)
    [hybrid] = await hybrids(backend, asked, lexical_weight=0.1)
    [second] = [candidate for candidate in hybrid.candidates if candidate.passage.id == "b"]
    rank = 2 if floor is None else 1
    assert second.terms["lexical:0"] * (60 + rank) == pytest.approx(1.0)
