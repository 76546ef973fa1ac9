"""Search bodies of the OpenSearch backend and what comes back. Tenant, permission and filters stand inside each of them."""

import hashlib
from collections.abc import Mapping
from typing import Any

from knowledge.adapters.analysis import analyzers_of, query_words
from knowledge.adapters.opensearch_client import ABSENT
from knowledge.adapters.stored import conditions, sees_nothing, shown_metadata, storable, usable_vector
from knowledge.adapters.synonyms import Expansion, Synonyms
from knowledge.models import Hit, Leg, LegQuery, LegResult, Passage, Visibility

Json = dict[str, Any]

PASSAGE_FIELDS = [
    "id",
    "document_id",
    "title",
    "content",
    "language",
    "metadata",
    "category",
    "tags",
    "importance",
    "identifiers",
]
"""What an answer holds: never a vector, never a permission."""

BEST_FIRST: list[Json] = [{"_score": "desc"}, {"id": "asc"}]


def visible(visibility: Visibility) -> list[Json]:
    """The permission filter. `terms` over an empty list matches nothing, so that no clause is ever left out."""
    return [
        {"term": {"tenant": visibility.tenant}},
        {
            "bool": {
                "should": [
                    {"terms": {"allowed_roles": storable(visibility.roles)}},
                    {"terms": {"allowed_subjects": storable([visibility.subject])}},
                ],
                "minimum_should_match": 1,
            }
        },
    ]


def search_body(query: LegQuery, timeout_ms: int, synonyms: Mapping[str, Synonyms] | None = None) -> Json | None:
    """The body of one leg; None for a query that can find nothing.

    Args:
        query: the leg.
        timeout_ms: what each shard may take, in milliseconds; what it has by then is kept.
        synonyms: the rules in each field; None for none.
    """
    if sees_nothing(query.visibility) or query.size < 1:
        return None
    narrowed = [*visible(query.visibility), *({"terms": {one.field: one.values}} for one in conditions(query.filters))]
    if query.leg is Leg.LEXICAL:
        clause = _lexical(query, narrowed, synonyms)
    else:
        clause = {Leg.VECTOR: _vector, Leg.IDENTIFIER: _identifier}[query.leg](query, narrowed)
    if clause is None:
        return None
    body: Json = {
        "size": query.size,
        "query": clause,
        "timeout": f"{timeout_ms}ms",
        "track_total_hits": False,
        "_source": PASSAGE_FIELDS,
    }
    if query.leg is not Leg.VECTOR:
        body |= {"sort": BEST_FIRST, "track_scores": True}
    return body


def _lexical(query: LegQuery, narrowed: list[Json], synonyms: Mapping[str, Synonyms] | None) -> Json | None:
    """Any of the distinct words, in the field of each language searched; a passage fills one of them."""
    asked = query_words(query.text)
    if not asked:
        return None
    expansions = {name: synonyms[name].expand(query.text) if synonyms else Expansion(asked) for name in analyzers_of(query.language)}
    matches = [_match(f"text.{name}", expansion) for name, expansion in expansions.items()]
    return {"bool": {"must": [{"dis_max": {"queries": matches}}], "filter": narrowed}}


def _match(field: str, expansion: Expansion) -> Json:
    """The words add up, and so does each group with the best of its phrases."""
    any_of = {"match": {field: {"query": " ".join(expansion.words)}}}
    if not expansion.groups:
        return any_of
    best_of = [
        {"dis_max": {"queries": [{"match": {field: {"query": phrase, "operator": "and"}}} for phrase in group]}}
        for group in expansion.groups
    ]
    return {"bool": {"should": [any_of, *best_of], "minimum_should_match": 1}}


def _vector(query: LegQuery, narrowed: list[Json]) -> Json | None:
    if not usable_vector(query.vector):
        return None
    near = {"vector": list(query.vector), "k": query.size, "filter": {"bool": {"filter": narrowed}}}
    return {"knn": {"vector": near}}


def _identifier(query: LegQuery, narrowed: list[Json]) -> Json | None:
    """Each distinct identifier counts one."""
    identifiers = storable(query.identifiers)
    if not identifiers:
        return None
    counted = [{"constant_score": {"filter": {"term": {"identifiers": name}}, "boost": 1}} for name in identifiers]
    return {"bool": {"should": counted, "minimum_should_match": 1, "filter": narrowed}}


def search_header(query: LegQuery) -> Json:
    """What stands before a body. A failed shard must not take the hits of the others along, whatever the cluster's default.

    A tenant's searches go to one copy while the cluster is unchanged: copies differ in deleted passages and so in BM25.
    """
    tenant = hashlib.sha256(query.visibility.tenant.encode()).hexdigest()[:16]
    return {"preference": f"tenant-{tenant}", "allow_partial_search_results": True}


def leg_result(query: LegQuery, item: Mapping[str, Any]) -> LegResult:
    """One item of the answer. Raises KeyError or TypeError if it is not shaped like one."""
    if "error" in item:
        return LegResult(failed=True)
    shards = item["_shards"]
    if shards["total"] and shards["failed"] == shards["total"]:
        return LegResult(failed=True, shards_failed=True)
    hits = [Hit(passage(hit["_source"]), _score(query.leg, float(hit["_score"]))) for hit in item["hits"]["hits"]]
    hits.sort(key=lambda hit: (-hit.score, hit.passage.id))
    return LegResult(tuple(hits), timed_out=bool(item["timed_out"]), shards_failed=shards["failed"] > 0)


def _score(leg: Leg, score: float) -> float:
    """Lucene makes (1 + cosine) / 2 of a cosine."""
    return max(-1.0, min(1.0, 2 * score - 1)) if leg is Leg.VECTOR else score


def is_absent(item: Mapping[str, Any]) -> bool:
    """Whether the item failed because there is no index."""
    error = item.get("error")
    return isinstance(error, dict) and error.get("type") == ABSENT


def passage(source: Mapping[str, Any]) -> Passage:
    """A passage from `PASSAGE_FIELDS`."""
    return Passage(
        source["id"],
        source["document_id"],
        source["title"],
        source["content"],
        source["language"],
        shown_metadata(source["metadata"], source["category"], source["tags"]),
        float(source["importance"]),
        tuple(source["identifiers"]),
    )
