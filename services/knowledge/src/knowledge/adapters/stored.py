"""What both search backends do alike: facets, metadata as callers see it, which records are refused, the mismatch sentences."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from knowledge.models import Filters, Record, Visibility, WriteFailure

SEPARATOR = "\x1f"
"""Stands between name and value of a facet; a name that holds it has no facet."""

MAX_FACET = 512
"""Characters of a facet, name included. Longer values are stored and shown, but no filter finds them."""

MAX_KEYWORD = 8000
"""Characters of an id, a role or a tag: a Lucene term holds 32,766 bytes."""

MIN_NORM = 1e-12
"""Shorter vectors, and longer ones than its inverse, lose their direction when float32 squares them."""

FACETS = "facets"
OWN_FIELDS = ("language", "category", "tags")
"""Filters on these use fields of their own; every other name is looked up in the facets."""


UNKNOWN_MODEL = "The index does not know its embedding model yet: open it with fingerprint and dimension before writing."


def facet(name: str, value: object) -> str | None:
    """The facet of one scalar value; None where it has none."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        text = json.dumps(value)
    else:
        return None
    whole = f"{name}{SEPARATOR}{text}"
    return whole if SEPARATOR not in name and len(whole) <= MAX_FACET else None


def facets(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """The distinct facets of scalar values and of lists of them. Objects inside metadata are stored, not filtered."""
    found: dict[str, None] = {}
    for name, value in metadata.items():
        values = value if isinstance(value, list | tuple) else [value]
        found.update((one, None) for item in values if (one := facet(str(name), item)) is not None)
    return tuple(found)


def shown_metadata(metadata: Mapping[str, Any], category: str, tags: Sequence[str]) -> dict[str, Any]:
    """The metadata of a passage as callers see it, with category and tags where the document has them."""
    shown = dict(metadata)
    if category:
        shown["category"] = category
    if tags:
        shown["tags"] = list(tags)
    return shown


def is_unicode(text: str) -> bool:
    """Whether a text can be stored: a lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def storable(values: Iterable[str]) -> list[str]:
    """The values that a stored field can equal. What cannot be stored is left out and never replaced: it must match nothing."""
    return sorted({value for value in values if is_unicode(value)})


def usable_vector(vector: Sequence[float]) -> bool:
    """Whether a cosine with this vector can be computed in float32."""
    return MIN_NORM <= math.hypot(*vector) <= 1 / MIN_NORM


def sees_nothing(visibility: Visibility) -> bool:
    """Whether this tenant can own no passage at all."""
    return not is_unicode(visibility.tenant)


@dataclass(frozen=True, slots=True)
class Condition:
    """One body filter as it is stored: a field of its own, or `facets`; any of the values. No values accept nothing."""

    field: str
    values: list[str]


def conditions(filters: Filters) -> list[Condition]:
    """The body filters; all must hold."""
    return [
        Condition(name, storable(values))
        if name in OWN_FIELDS
        else Condition(FACETS, storable(f"{name}{SEPARATOR}{value}" for value in values))
        for name, values in filters
    ]


def refusals(tenant: str, upserts: Sequence[Record], dimension: int) -> dict[str, WriteFailure]:
    """The records that no backend can take, by id, with a reason that names a field and never its content."""
    found = {record.id: _reason(tenant, record, dimension) for record in upserts}
    return {name: WriteFailure(name, reason) for name, reason in found.items() if reason}


def _reason(tenant: str, record: Record, dimension: int) -> str | None:
    if record.tenant != tenant:
        return "tenant: is not the one that is written to"
    return _long_field(record) or _unusable_number(record, dimension) or _unstorable_field(record)


def _long_field(record: Record) -> str | None:
    for name in ("id", "document_id", "chunk_key", "source", "category", "language", "embed_hash", "record_hash"):
        if len(getattr(record, name)) > MAX_KEYWORD:
            return f"{name}: longer than {MAX_KEYWORD} characters"
    for name in ("tags", "allowed_roles", "allowed_subjects", "identifiers"):
        if any(len(value) > MAX_KEYWORD for value in getattr(record, name)):
            return f"{name}: a value is longer than {MAX_KEYWORD} characters"
    return None


def _unusable_number(record: Record, dimension: int) -> str | None:
    if not math.isfinite(record.importance):
        return "importance: is not finite"
    if record.vector and len(record.vector) != dimension:
        return f"vector: has {len(record.vector)} dimensions, the index holds {dimension}"
    if record.vector and not usable_vector(record.vector):
        return "vector: is zero, too small, too large or not finite"
    return None


def _unstorable_field(record: Record) -> str | None:
    texts = {
        name: (value,) if isinstance(value, str) else value
        for name in record.__slots__
        if isinstance(value := getattr(record, name), str | tuple) and name != "vector"
    }
    for name, values in texts.items():
        if not all(map(is_unicode, values)):
            return f"{name}: is not valid Unicode (a lone surrogate)"
    try:
        json.dumps(record.metadata, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, TypeError, RecursionError):
        return "metadata: is not valid JSON"
    return None


NOT_EMBEDDED = ""
"""The embed_hash of a chunk whose vector is still to be made, by a writer or a reindex that has the index's embedding model."""


def without_vector(record: Record) -> Record:
    """A record for an index of another embedding model."""
    return replace(record, vector=(), embed_hash=NOT_EMBEDDED)


def other_model(where: str, *, stored: str, wanted: str) -> str:
    """The sentence for vectors of another model."""
    return (
        f"{where} holds vectors of another embedding model (made with {stored}, now {wanted}). "
        "Start with the model it was made with, or ingest the documents again into a new index."
    )


def union(lists: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """The distinct values of all lists, sorted."""
    return tuple(sorted({value for one in lists for value in one}))


def as_words(fingerprint: str, dimension: int) -> str:
    """A fingerprint and a dimension for people."""
    return f"fingerprint {fingerprint}, dimension {dimension}"
