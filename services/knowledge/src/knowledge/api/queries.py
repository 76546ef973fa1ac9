"""From the request on the wire to the pipeline's `Query`: defaults filled in, limits that depend on settings checked."""

from collections.abc import Mapping, Sequence

from knowledge.api.schemas import SearchRequest
from knowledge.errors import InvalidRequest
from knowledge.models import Filters, Query, Scope
from knowledge.settings import Settings

MAX_SEARCHES = 16
RESERVED = frozenset({"tenant", "allowed_roles", "allowed_subjects"})


def to_query(request: SearchRequest, settings: Settings, *, may_explain: bool) -> Query:
    """The query that `request` means.

    Raises:
        InvalidRequest: names the field and the limit.
    """
    warnings: list[str] = []
    top_k = request.top_k or settings.reranker.reranker_top_k
    sub_queries = tuple(dict.fromkeys(text for text in request.sub_queries if text))
    scopes = _scopes(request, top_k, settings)
    searches = max(1, len(sub_queries)) * len(scopes)
    if searches > MAX_SEARCHES:
        raise InvalidRequest("sub_queries", f"sub-queries x scopes is {searches}, over the limit of {MAX_SEARCHES}")
    if request.explain and not may_explain:
        warnings.append(f"explain: left out, because the token lacks the role {settings.identity.auth_operator_role}")
    importance = settings.search.use_importance if request.use_importance is None else request.use_importance
    return Query(
        text=request.query,
        sub_queries=sub_queries,
        top_k=top_k,
        scopes=scopes,
        scoped=bool(request.scopes),
        language=None if request.language == "all" else request.language,
        rerank=request.rerank,
        rerank_depth=_rerank_depth(request, top_k, settings, warnings),
        drop_lexical_below_floor=request.min_similarity_mode == "all",
        use_importance=importance,
        explain=request.explain and may_explain,
        warnings=tuple(warnings),
    )


def deadline_s(request: SearchRequest, settings: Settings) -> float:
    """The time the request may take, in seconds.

    Raises:
        InvalidRequest: more than SEARCH_DEADLINE_S.
    """
    longest = settings.time.search_deadline_s
    if request.deadline_ms is None:
        return longest
    if request.deadline_ms > longest * 1000:
        raise InvalidRequest("deadline_ms", f"over the limit of {int(longest * 1000)} (SEARCH_DEADLINE_S)")
    return request.deadline_ms / 1000


def _rerank_depth(request: SearchRequest, top_k: int, settings: Settings, warnings: list[str]) -> int:
    initial_k = settings.reranker.reranker_initial_k
    if request.rerank_depth is None:
        return initial_k
    if request.rerank_depth > initial_k:
        raise InvalidRequest("rerank_depth", f"over the limit of {initial_k} (RERANKER_INITIAL_K)")
    if request.rerank_depth < top_k:
        warnings.append("rerank_depth: below top_k, so the end of the results is in hybrid order")
    return request.rerank_depth


def _scopes(request: SearchRequest, top_k: int, settings: Settings) -> tuple[Scope, ...]:
    floor = settings.search.min_similarity if request.min_similarity is None else request.min_similarity
    base = _filters("filters", request.filters, settings)
    if not request.scopes:
        return (Scope("", base, top_k, floor),)
    names = [scope.name for scope in request.scopes]
    if len(set(names)) < len(names):
        raise InvalidRequest("scopes", "names must be unique")
    return tuple(
        Scope(
            scope.name,
            base + _filters(f"scopes.{index}.filters", scope.filters, settings),
            scope.top_k or top_k,
            floor if scope.min_similarity is None else scope.min_similarity,
        )
        for index, scope in enumerate(request.scopes)
    )


def _filters(field: str, filters: Mapping[str, Sequence[str]], settings: Settings) -> Filters:
    for name in filters:
        if name not in settings.search.filterable_fields or name in RESERVED:
            allowed = ", ".join(settings.search.filterable_fields)
            raise InvalidRequest(f"{field}.{name}"[:64], f"no filter field; allowed are {allowed} (FILTERABLE_FIELDS)")
    return tuple((name, tuple(dict.fromkeys(values))) for name, values in filters.items())
