"""The index of the OpenSearch backend: analyzers, fields, `_meta`, and whether an existing index fits.

Every passage fills the text field of its language. Decompounding and synonyms join the filters of `text_analysis` when they come.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from knowledge.adapters.analysis import ANALYSIS_VERSION, ANALYZERS, DE, EN, STD, fold, fold_german
from knowledge.adapters.stopwords import ENGLISH, GERMAN
from knowledge.adapters.stored import as_words, other_model
from knowledge.errors import IndexMismatch

META = "knowledge_gateway"
PERMISSION_FIELDS = ("tenant", "allowed_roles", "allowed_subjects")
KEYWORDS = (
    *PERMISSION_FIELDS,
    *(
        "id",
        "document_id",
        "chunk_key",
        "source",
        "language",
        "category",
        "tags",
        "identifiers",
        "facets",
        "embed_hash",
        "record_hash",
    ),
)


def text_analysis() -> dict[str, Any]:
    """The analyzers `knowledge_de`, `knowledge_en` and `knowledge_std`.

    Stop words come after the folding, as folded words: `fuer` is one as much as `für`. Numbers and short terms pass untouched.
    """
    chains = {
        DE: ["lowercase", "asciifolding", "german_normalization", "knowledge_de_stop", "knowledge_de_stem"],
        EN: ["lowercase", "asciifolding", "knowledge_en_stop", "knowledge_en_stem"],
        STD: ["lowercase", "asciifolding"],
    }
    return {
        "analyzer": {f"knowledge_{name}": {"type": "custom", "tokenizer": "standard", "filter": chain} for name, chain in chains.items()},
        "filter": {
            "knowledge_de_stop": {"type": "stop", "stopwords": sorted(set(map(fold_german, GERMAN)))},
            "knowledge_de_stem": {"type": "stemmer", "language": "light_german"},
            "knowledge_en_stop": {"type": "stop", "stopwords": sorted(set(map(fold, ENGLISH)))},
            "knowledge_en_stem": {"type": "stemmer", "language": "porter2"},
        },
    }


def _properties(dimension: int) -> dict[str, Any]:
    shown_only = {"type": "text", "index": False}
    return {
        **{name: {"type": "keyword"} for name in KEYWORDS},
        "ordinal": {"type": "integer"},
        "importance": {"type": "float"},
        **dict.fromkeys(("document_title", "title", "content"), shown_only),
        # Kept as it came and never mapped: filters go through `facets`, so that no metadata makes the mapping grow.
        "metadata": {"type": "object", "enabled": False},
        "text": {"properties": {name: {"type": "text", "analyzer": f"knowledge_{name}"} for name in ANALYZERS}},
        "vector": {
            "type": "knn_vector",
            "dimension": dimension,
            # All four are written out: defaults differ between releases, and not every engine filters while it searches.
            "method": {
                "name": "hnsw",
                "engine": "lucene",
                "space_type": "cosinesimil",
                "parameters": {"m": 16, "ef_construction": 128},
            },
        },
    }


def _digest(value: object) -> str:
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def mapping_hash() -> str:
    """What must be equal for an index to fit this release, whatever its embedding model."""
    return _digest({"analysis": text_analysis(), "version": ANALYSIS_VERSION, "properties": _properties(0)})[:16]


def index_name(alias: str, fingerprint: str, dimension: int) -> str:
    """The physical index behind the alias: another mapping or model gives another name."""
    return f"{alias}-{_digest([mapping_hash(), fingerprint, dimension])[:10]}"


def index_body(alias: str, fingerprint: str, dimension: int, replicas: int | None) -> dict[str, Any]:
    """What creates the index together with its alias."""
    copies = {"auto_expand_replicas": "0-1"} if replicas is None else {"number_of_replicas": replicas}
    meta = {"mapping_hash": mapping_hash(), "fingerprint": fingerprint, "dimension": dimension}
    return {
        "settings": {
            "index": {"knn": True, "number_of_shards": 1, **copies},
            "analysis": text_analysis(),
        },
        "mappings": {"dynamic": "strict", "_meta": {META: meta}, "properties": _properties(dimension)},
        "aliases": {alias: {}},
    }


@dataclass(frozen=True, slots=True)
class Described:
    """An index as it is: its physical name and mapping."""

    name: str
    mapping: Mapping[str, Any]

    @property
    def meta(self) -> Mapping[str, Any]:
        """What its creator wrote into `_meta`; empty if that was not this product."""
        meta = self.mapping.get("_meta", {}).get(META, {})
        return meta if isinstance(meta, dict) else {}

    @property
    def dimension(self) -> int:
        """The length of its vectors."""
        return int(self.meta.get("dimension", 0))


def check(found: Described, alias: str, fingerprint: str | None, dimension: int | None) -> None:
    """Whether an index fits.

    Raises:
        IndexMismatch: permission fields that are analysed, a mapping of another origin or release, another embedding model.
    """
    where = f"The index {found.name} behind {alias}"
    properties = found.mapping.get("properties", {})
    analysed = [name for name in PERMISSION_FIELDS if properties.get(name, {}).get("type") != "keyword"]
    if analysed:
        raise IndexMismatch(
            f"{where} does not hold {', '.join(analysed)} as keyword, so it cannot tell one role from another. "
            "Name another alias in OPENSEARCH_INDEX and ingest the documents again, or delete the index so that the gateway makes it."
        )
    if found.meta.get("mapping_hash") != mapping_hash():
        built = found.meta.get("mapping_hash", "unknown")
        raise IndexMismatch(
            f"{where} was built for mapping {built}, this release needs {mapping_hash()}. "
            "Name another alias in OPENSEARCH_INDEX and ingest the documents again, or start the release it was built with."
        )
    stored = (found.meta.get("fingerprint"), found.meta.get("dimension"))
    if fingerprint is not None and dimension is not None and stored != (fingerprint, dimension):
        built = as_words(str(stored[0]), found.dimension)
        raise IndexMismatch(other_model(where, stored=built, wanted=as_words(fingerprint, dimension)))
