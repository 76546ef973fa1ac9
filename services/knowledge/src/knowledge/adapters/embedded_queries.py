"""The statements of the embedded backend that find passages. Tenant, permission and filters stand inside each of them."""

import json
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from knowledge.adapters.analysis import Analyzer, analyzers_of, query_words
from knowledge.adapters.embedded_schema import LINKS, load_strings
from knowledge.adapters.stored import conditions, sees_nothing, shown_metadata, storable, usable_vector
from knowledge.models import Hit, Leg, LegQuery, Passage, Visibility

Parameters = list[str | int | bytes]

_HITS = """
WITH found (key, score, id) AS ({found}),
  best AS (SELECT key, score, id FROM found WHERE score IS NOT NULL ORDER BY score DESC, id LIMIT ?)
SELECT best.score, {columns} FROM best JOIN passages AS p USING (key) ORDER BY best.score DESC, best.id
"""
# FTS5 reads its `rank` (negative BM25) while it matches, so it must lead the join.
_LEXICAL = """
SELECT p.key, -f.rank, p.id FROM text_{name} AS f CROSS JOIN passages AS p ON p.key = f.rowid
WHERE f.text_{name} MATCH ? AND {narrowed}
"""
_VECTOR = """
SELECT p.key, max(-1.0, min(1.0, 1 - vec_distance_cosine(v.vector, ?))), p.id FROM passages AS p JOIN vectors AS v ON v.passage = p.key
WHERE {narrowed}
"""
_IDENTIFIER = """
SELECT p.key, count(*), p.id FROM passage_identifiers AS i JOIN passages AS p ON p.key = i.passage
WHERE i.value IN ({marks}) AND {narrowed} GROUP BY p.key
"""
PASSAGE_COLUMNS = "p.id, p.document_id, p.title, p.content, p.language, p.metadata, p.category, p.tags, p.importance, p.identifiers"

_VISIBLE = """p.tenant = ? AND p.key IN (
  SELECT passage FROM passage_roles WHERE value IN ({roles})
  UNION SELECT passage FROM passage_subjects WHERE value IN ({subjects})
)"""
_LINKED = "p.key IN (SELECT passage FROM passage_{field} WHERE value IN ({values}))"
_OWN = "p.{field} IN ({values})"


def marks(values: Sequence[object]) -> str:
    """Question marks for a list of values."""
    return ", ".join("?" * len(values))


def visible(visibility: Visibility) -> tuple[str, Parameters]:
    """The permission filter as a condition on `passages AS p`: an empty list of roles is a list that holds nothing."""
    roles, subjects = storable(visibility.roles), storable([visibility.subject])
    clause = _VISIBLE.format(roles=marks(roles), subjects=marks(subjects))
    return clause, [visibility.tenant, *roles, *subjects]


def _narrowed(query: LegQuery) -> tuple[str, Parameters]:
    """Permission filter and body filters together."""
    clause, parameters = visible(query.visibility)
    clauses = [clause]
    for condition in conditions(query.filters):
        template = _LINKED if condition.field in LINKS else _OWN
        clauses.append(template.format(field=condition.field, values=marks(condition.values)))
        parameters.extend(condition.values)
    return " AND ".join(clauses), parameters


def find(connection: apsw.Connection, analyzers: Mapping[str, Analyzer], query: LegQuery) -> tuple[Hit, ...]:
    """The hits of one leg, by (score desc, chunk id asc).

    Raises:
        apsw.Error: the statement failed, or was interrupted.
    """
    if sees_nothing(query.visibility) or query.size < 1:
        return ()
    if query.leg is Leg.LEXICAL:
        found, parameters = _lexical(analyzers, query)
    elif query.leg is Leg.VECTOR:
        found, parameters = _vector(query)
    else:
        found, parameters = _identifier(query)
    if not found:
        return ()
    rows = connection.execute(_HITS.format(found=found, columns=PASSAGE_COLUMNS), [*parameters, query.size])
    return tuple(Hit(passage(row[1:]), float(row[0])) for row in rows)


def _lexical(analyzers: Mapping[str, Analyzer], query: LegQuery) -> tuple[str, Parameters]:
    """Any of the distinct terms, in the table of each language searched; a passage stands in one of them."""
    narrowed, narrowing = _narrowed(query)
    statements: list[str] = []
    parameters: Parameters = []
    asked = query_words(query.text)
    for name in analyzers_of(query.language):
        terms = dict.fromkeys(term for word in asked if (term := analyzers[name].term(word)))
        if terms:
            statements.append(_LEXICAL.format(name=name, narrowed=narrowed))
            quoted = (term.replace('"', '""') for term in terms)
            parameters += [" OR ".join(f'"{term}"' for term in quoted), *narrowing]
    return " UNION ALL ".join(statements), parameters


def _vector(query: LegQuery) -> tuple[str, Parameters]:
    if not usable_vector(query.vector):
        return "", []
    narrowed, narrowing = _narrowed(query)
    return _VECTOR.format(narrowed=narrowed), [pack(query.vector), *narrowing]


def _identifier(query: LegQuery) -> tuple[str, Parameters]:
    identifiers = storable(query.identifiers)
    narrowed, narrowing = _narrowed(query)
    return _IDENTIFIER.format(marks=marks(identifiers), narrowed=narrowed), [*identifiers, *narrowing]


def pack(vector: Sequence[float]) -> bytes:
    """A vector as sqlite-vec reads it: float32 in the machine's byte order."""
    return array("f", vector).tobytes()


def unpack(blob: bytes) -> tuple[float, ...]:
    """The vector of a column."""
    values = array("f")
    values.frombytes(blob)
    return tuple(values)


def passage(row: Sequence[Any]) -> Passage:
    """A passage from `PASSAGE_COLUMNS`."""
    chunk_id, document_id, title, content, language, metadata, category, tags, importance, identifiers = row
    shown = shown_metadata(json.loads(metadata), category, load_strings(tags))
    return Passage(chunk_id, document_id, title, content, language, shown, float(importance), load_strings(identifiers))
