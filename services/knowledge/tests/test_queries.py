"""From the request to the query: defaults, limits that depend on settings, and the field and limit that each refusal names."""

from typing import Any

import pytest

from knowledge.api.queries import deadline_s, to_query
from knowledge.api.schemas import SearchRequest
from knowledge.errors import InvalidRequest
from knowledge.models import Query, Scope
from services.knowledge.tests.serving import settings


def built(body: dict[str, Any], *, may_explain: bool = False, **given: Any) -> Query:
    """The query of a request body."""
    return to_query(SearchRequest.model_validate({"query": "wasser", **body}), settings(**given), may_explain=may_explain)


def refusal(body: dict[str, Any], **given: Any) -> InvalidRequest:
    """The refusal of a request body."""
    with pytest.raises(InvalidRequest) as caught:
        built(body, **given)
    return caught.value


def test_only_the_query_is_required() -> None:
    """Everything else has its default."""
    found = built({})
    assert found == Query("wasser", (), 5, (Scope("", (), 5, None),), rerank_depth=15)
    assert found.searched == ("wasser",)


def test_the_default_length_is_reranker_top_k() -> None:
    """RERANKER_TOP_K decides when the caller names no top_k, for scopes too."""
    assert built({}, reranker_top_k=9).top_k == 9
    assert built({"top_k": 3}, reranker_top_k=9).top_k == 3
    assert [scope.top_k for scope in built({"scopes": [{"name": "a"}, {"name": "b", "top_k": 2}]}, reranker_top_k=9).scopes] == [9, 2]


def test_text_is_trimmed_and_cleaned() -> None:
    """Outer blanks, NUL and lone surrogates do not reach the pipeline."""
    assert built({"query": "  a\x00b \ud800 "}).text == "ab \ufffd"


def test_distinct_sub_queries_are_searched_and_blank_ones_dropped() -> None:
    """The question is searched only when no sub-query is left; order stays."""
    assert built({"sub_queries": ["b", " ", "a", "b", "", "\x00"]}).searched == ("b", "a")
    assert built({"sub_queries": [" ", ""]}).searched == ("wasser",)


@pytest.mark.parametrize(("sub_queries", "scopes", "allowed"), [(8, 2, True), (2, 8, True), (8, 3, False), (0, 8, True), (3, 6, False)])
def test_sub_queries_times_scopes_is_at_most_sixteen(sub_queries: int, scopes: int, allowed: bool) -> None:
    """Beyond sixteen searches the request is refused, naming the limit."""
    body = {"sub_queries": [f"q{n}" for n in range(sub_queries)], "scopes": [{"name": f"s{n}"} for n in range(scopes)]}
    if allowed:
        assert len(built(body).scopes) == scopes
    else:
        error = refusal(body)
        assert error.field == "sub_queries"
        assert "16" in error.message


def test_dropped_sub_queries_do_not_count_for_that_limit() -> None:
    """Only what is searched counts."""
    assert built({"sub_queries": ["a", "", "a", " "], "scopes": [{"name": f"s{n}"} for n in range(8)]})


def test_scope_names_must_be_unique() -> None:
    """Two scopes of one name could not be told apart in the answer."""
    assert refusal({"scopes": [{"name": "a"}, {"name": "a"}]}).field == "scopes"


def test_scopes_take_their_defaults_from_the_request_and_add_to_its_filters() -> None:
    """Request filters AND scope filters; floor and length of the request unless the scope has its own."""
    body = {
        "top_k": 7,
        "min_similarity": 0.4,
        "filters": {"language": ["de"]},
        "scopes": [
            {"name": "a", "filters": {"category": ["x"]}},
            {"name": "b", "filters": {"language": "en"}, "min_similarity": 0, "top_k": 2},
        ],
    }
    found = built(body)
    assert found.scoped
    assert found.scopes == (
        Scope("a", (("language", ("de",)), ("category", ("x",))), 7, 0.4),
        Scope("b", (("language", ("de",)), ("language", ("en",))), 2, 0.0),
    )


@pytest.mark.parametrize("name", ["tenant", "allowed_roles", "allowed_subjects", "source", "id", "document_id", "importance", "x.y", ""])
@pytest.mark.parametrize("in_scope", [False, True])
def test_only_filterable_fields_can_be_filtered(name: str, in_scope: bool) -> None:
    """Tenant, permissions and unknown fields are refused; the field is named and the allowed ones listed."""
    filters = {name: ["acme"]}
    error = refusal({"scopes": [{"name": "a", "filters": filters}]} if in_scope else {"filters": filters})
    assert error.field == (f"scopes.0.filters.{name}" if in_scope else f"filters.{name}")
    assert "language" in error.message
    assert "acme" not in error.detail


def test_named_metadata_can_be_filtered() -> None:
    """FILTERABLE_FIELDS may name metadata fields."""
    found = built({"filters": {"line": ["haus", "kfz", "haus"]}}, filterable_fields="language,line")
    assert found.scopes[0].filters == (("line", ("haus", "kfz")),)


def test_language_never_becomes_a_filter() -> None:
    """It chooses fields; `all` and nothing mean every language."""
    assert (built({"language": "de"}).language, built({"language": "de"}).scopes[0].filters) == ("de", ())
    assert built({"language": "all"}).language is None
    assert built({}).language is None


def test_rerank_depth_is_bounded_by_initial_k() -> None:
    """Above INITIAL_K is refused with the limit; below top_k is a warning; equal is neither."""
    error = refusal({"rerank_depth": 16})
    assert (error.field, "15" in error.message) == ("rerank_depth", True)
    assert built({"rerank_depth": 15}).warnings == ()
    assert built({"rerank_depth": 3, "top_k": 3}).warnings == ()
    [warning] = built({"rerank_depth": 3, "top_k": 4}).warnings
    assert "rerank_depth" in warning


def test_a_default_depth_below_top_k_is_no_warning() -> None:
    """Only what the caller set is worth a warning."""
    assert built({"top_k": 50}).warnings == ()


def test_floor_and_importance_default_to_the_settings() -> None:
    """The request wins over MIN_SIMILARITY and USE_IMPORTANCE, `false` and 0 included."""
    given = {"min_similarity": 0.5, "use_importance": True}
    assert (built({}, **given).scopes[0].min_similarity, built({}, **given).use_importance) == (0.5, True)
    found = built({"min_similarity": 0, "use_importance": False}, **given)
    assert (found.scopes[0].min_similarity, found.use_importance) == (0.0, False)
    assert built({"min_similarity_mode": "all"}).drop_lexical_below_floor


def test_explain_is_for_operators() -> None:
    """Others get a warning that names the role, and no explanation."""
    assert built({"explain": True}, may_explain=True).explain
    denied = built({"explain": True})
    assert not denied.explain
    assert "knowledge-operator" in denied.warnings[0]


def test_the_deadline_is_the_setting_or_less() -> None:
    """Unset it is SEARCH_DEADLINE_S, set it is what was asked, above it is refused with the limit."""
    chosen = settings()
    assert deadline_s(SearchRequest(query="x"), chosen) == 30.0
    assert deadline_s(SearchRequest(query="x", deadline_ms=2500), chosen) == 2.5
    assert deadline_s(SearchRequest(query="x", deadline_ms=30_000), chosen) == 30.0
    with pytest.raises(InvalidRequest, match="30000"):
        deadline_s(SearchRequest(query="x", deadline_ms=30_001), chosen)
