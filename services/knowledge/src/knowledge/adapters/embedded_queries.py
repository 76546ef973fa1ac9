"""The statements of the embedded backend that find passages. Tenant, permission and filters stand inside each of them."""

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import apsw

from knowledge.adapters.analysis import Analyzer, analyzers_of
from knowledge.adapters.embedded_schema import LINKS, load_strings
from knowledge.adapters.stored import conditions, sees_nothing, shown_metadata, storable, usable_vector
from knowledge.adapters.synonyms import Synonyms, phrases_of
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
# A word and its synonyms are one part, of which the best counts; part 0 holds the words that have none.
_BY_PARTS = """
SELECT p.key, sum(m.score), p.id FROM (
  SELECT key, max(score) AS score FROM ({matched}) GROUP BY part, key
) AS m CROSS JOIN passages AS p ON p.key = m.key WHERE {narrowed} GROUP BY p.key
"""
_PART = "SELECT rowid AS key, {part} AS part, -rank AS score FROM text_{name} WHERE text_{name} MATCH ?"
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


def find(
    connection: apsw.Connection, analyzers: Mapping[str, Analyzer], synonyms: Mapping[str, Synonyms], query: LegQuery
) -> tuple[Hit, ...]:
    """The hits of one leg, by (score desc, chunk id asc).

    Raises:
        apsw.Error: the statement failed, or was interrupted.
    """
    if sees_nothing(query.visibility) or query.size < 1:
        return ()
    if query.leg is Leg.LEXICAL:
        found, parameters = _lexical(analyzers, synonyms, query)
    elif query.leg is Leg.VECTOR:
        found, parameters = _vector(query)
    else:
        found, parameters = _identifier(query)
    if not found:
        return ()
    rows = connection.execute(_HITS.format(found=found, columns=PASSAGE_COLUMNS), [*parameters, query.size])
    return tuple(Hit(passage(row[1:]), float(row[0])) for row in rows)


def _lexical(analyzers: Mapping[str, Analyzer], synonyms: Mapping[str, Synonyms], query: LegQuery) -> tuple[str, Parameters]:
    """Any of the distinct terms, in the table of each language searched; a passage stands in one of them."""
    narrowed, narrowing = _narrowed(query)
    statements: list[str] = []
    parameters: Parameters = []
    for name in analyzers_of(query.language):
        expansion = synonyms[name].expand(query.text)
        any_of = _matching((term for word in expansion.words if (term := analyzers[name].term(word))), " OR ")
        all_of = ((part, _matching(analyzers[name].terms(phrase), " AND ")) for part, phrase in phrases_of(expansion.groups))
        parts = [(part, match) for part, match in ((0, any_of), *all_of) if match]
        if not expansion.groups and parts:
            statements.append(_LEXICAL.format(name=name, narrowed=narrowed))
        elif parts:
            matched = " UNION ALL ".join(_PART.format(part=part, name=name) for part, _ in parts)
            statements.append(_BY_PARTS.format(matched=matched, narrowed=narrowed))
        if parts:
            parameters += [*(match for _, match in parts), *narrowing]
    return " UNION ALL ".join(statements), parameters


def _matching(terms: Iterable[str], operator: str) -> str:
    """The distinct terms as FTS5 reads them, each quoted."""
    return operator.join('"' + term.replace('"', '""') + '"' for term in dict.fromkeys(terms))


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
