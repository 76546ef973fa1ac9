"""The index of the OpenSearch backend: analyzers, fields, `_meta`, and whether an existing index fits.

Every passage fills the text field of its language. With compound words German passages are split when they are indexed, and queries are
not: a query for a compound must not be answered by every passage that holds one of its parts.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from knowledge.adapters.analysis import ANALYSIS_VERSION, ANALYZERS, DE, EN, STD, fold, fold_german
from knowledge.adapters.compounds import MAX_PART, MIN_PART, MIN_WORD, NO_COMPOUND_WORDS, CompoundWords, other_compound_words
from knowledge.adapters.stopwords import ENGLISH, GERMAN
from knowledge.adapters.stored import as_words, other_model
from knowledge.errors import IndexMismatch

META = "knowledge_gateway"
COMPOUND_WORDS = "compound_words"
"""In `_meta`: the digest of the words that German passages were split into, and beside it how many they are; absent for none."""

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


def text_analysis(compounds: CompoundWords = NO_COMPOUND_WORDS) -> dict[str, Any]:
    """The analyzers `knowledge_de`, `knowledge_en` and `knowledge_std`, and `knowledge_de_search` where German passages are split.

    Stop words come after the folding, as folded words: `fuer` is one as much as `für`. Numbers and short terms pass untouched.
    Words are split after both, so that the list is folded in the same way, and before stemming, so that parts are stemmed like words.
    """
    chains = {
        DE: ["lowercase", "asciifolding", "german_normalization", "knowledge_de_stop", "knowledge_de_stem"],
        EN: ["lowercase", "asciifolding", "knowledge_en_stop", "knowledge_en_stem"],
        STD: ["lowercase", "asciifolding"],
    }
    filters: dict[str, dict[str, Any]] = {
        "knowledge_de_stop": {"type": "stop", "stopwords": sorted(set(map(fold_german, GERMAN)))},
        "knowledge_de_stem": {"type": "stemmer", "language": "light_german"},
        "knowledge_en_stop": {"type": "stop", "stopwords": sorted(set(map(fold, ENGLISH)))},
        "knowledge_en_stem": {"type": "stemmer", "language": "porter2"},
    }
    if compounds.words:
        chains[f"{DE}_search"] = chains[DE]
        chains[DE] = [*chains[DE][:-1], "knowledge_de_parts", chains[DE][-1]]
        filters["knowledge_de_parts"] = {
            "type": "dictionary_decompounder",
            "word_list": sorted(compounds.words),
            "min_word_size": MIN_WORD,
            "min_subword_size": MIN_PART,
            "max_subword_size": MAX_PART,
            "only_longest_match": True,
        }
    return {
        "analyzer": {f"knowledge_{name}": {"type": "custom", "tokenizer": "standard", "filter": chain} for name, chain in chains.items()},
        "filter": filters,
    }


def _text_fields(compounds: CompoundWords) -> dict[str, Any]:
    fields = {name: {"type": "text", "analyzer": f"knowledge_{name}"} for name in ANALYZERS}
    if compounds.words:
        fields[DE]["search_analyzer"] = f"knowledge_{DE}_search"
    return fields


def _properties(dimension: int, compounds: CompoundWords) -> dict[str, Any]:
    shown_only = {"type": "text", "index": False}
    return {
        **{name: {"type": "keyword"} for name in KEYWORDS},
        "ordinal": {"type": "integer"},
        "importance": {"type": "float"},
        **dict.fromkeys(("document_title", "title", "content"), shown_only),
        # Kept as it came and never mapped: filters go through `facets`, so that no metadata makes the mapping grow.
        "metadata": {"type": "object", "enabled": False},
        "text": {"properties": _text_fields(compounds)},
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


@lru_cache
def mapping_hash(compounds: CompoundWords = NO_COMPOUND_WORDS) -> str:
    """What must be equal for an index to fit this release and these compound words, whatever its embedding model."""
    return _digest({"analysis": text_analysis(compounds), "version": ANALYSIS_VERSION, "properties": _properties(0, compounds)})[:16]


def index_name(alias: str, fingerprint: str, dimension: int, compounds: CompoundWords = NO_COMPOUND_WORDS) -> str:
    """The physical index behind the alias: another mapping, word list or model gives another name."""
    return f"{alias}-{_digest([mapping_hash(compounds), fingerprint, dimension])[:10]}"


def index_body(
    alias: str | None,
    fingerprint: str,
    dimension: int,
    replicas: int | None,
    compounds: CompoundWords = NO_COMPOUND_WORDS,
    shards: int = 1,
) -> dict[str, Any]:
    """What creates the index, together with its alias where one is given.

    Args:
        alias: None for an index beside the one behind the alias.
        fingerprint: of the embedding model.
        dimension: of its vectors.
        replicas: copies beside the first; None for one where there is a second node.
        compounds: what German words are split into when they are indexed.
        shards: parts of the index.
    """
    copies = {"auto_expand_replicas": "0-1"} if replicas is None else {"number_of_replicas": replicas}
    meta = {"mapping_hash": mapping_hash(compounds), "fingerprint": fingerprint, "dimension": dimension}
    if compounds.words:
        meta |= {COMPOUND_WORDS: compounds.digest, f"{COMPOUND_WORDS}_count": len(compounds.words)}
    body: dict[str, Any] = {
        "settings": {
            "index": {"knn": True, "number_of_shards": shards, **copies},
            "analysis": text_analysis(compounds),
        },
        "mappings": {"dynamic": "strict", "_meta": {META: meta}, "properties": _properties(dimension, compounds)},
    }
    return body if alias is None else body | {"aliases": {alias: {}}}


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


def check(
    found: Described, alias: str, fingerprint: str | None, dimension: int | None, compounds: CompoundWords = NO_COMPOUND_WORDS
) -> None:
    """Whether an index fits.

    Raises:
        IndexMismatch: permission fields that are analysed, a mapping of another origin or release, other compound words, another
            embedding model.
    """
    where = f"The index {found.name} behind {alias}"
    properties = found.mapping.get("properties", {})
    analysed = [name for name in PERMISSION_FIELDS if properties.get(name, {}).get("type") != "keyword"]
    if analysed:
        raise IndexMismatch(
            f"{where} does not hold {', '.join(analysed)} as keyword, so it cannot tell one role from another. "
            "Name another alias in OPENSEARCH_INDEX and ingest the documents again, or delete the index so that the gateway makes it."
        )
    needed = mapping_hash(compounds)
    if found.meta and found.meta.get(COMPOUND_WORDS, "") != compounds.digest:
        raise IndexMismatch(other_compound_words(where, "run `knowledge reindex` to build the index anew"))
    if found.meta.get("mapping_hash") != needed:
        built = found.meta.get("mapping_hash", "unknown")
        raise IndexMismatch(
            f"{where} was built for mapping {built}, this release needs {needed}. "
            "Run `knowledge reindex` with this release, or start the release it was built with."
        )
    stored = (found.meta.get("fingerprint"), found.meta.get("dimension"))
    if fingerprint is not None and dimension is not None and stored != (fingerprint, dimension):
        built = as_words(str(stored[0]), found.dimension)
        raise IndexMismatch(other_model(where, stored=built, wanted=as_words(fingerprint, dimension)))
