"""The identity of a chunk and the two hashes: what changes which of them, and that nothing collides."""

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge.ingest.chunking import Chunk
from knowledge.ingest.documents import DocumentInput
from knowledge.ingest.identity import build_record, chunk_id
from knowledge.models import Record

names = st.text(alphabet="ab\x00|/:0123456789", max_size=6)


def built(
    chunk: dict[str, Any] | None = None, *, fingerprint: str = "fp", source: str = "files", tenant: str = "acme", **document: Any
) -> Record:
    """The record of a chunk of a document."""
    one = Chunk(**{"key": "#0", "ordinal": 0, "title": "T", "content": "wasser", **(chunk or {})})
    whole = DocumentInput(**{"id": "d", "allowed_roles": ["reader"], **document})
    return build_record(whole, one, tenant=tenant, source=source, text_fields=("title", "content"), fingerprint=fingerprint)


@given(st.tuples(names, names, names), st.tuples(names, names, names))
def test_two_different_triples_never_have_one_identity(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    """Tenant, document and chunk key are encoded with their lengths."""
    assert (chunk_id(*one) == chunk_id(*other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("t", "a", "bc"), ("t", "ab", "c")),
        (("ta", "b", "c"), ("t", "ab", "c")),
        (("", "a", "b"), ("a", "", "b")),
        (("t", "a", ""), ("t", "", "a")),
    ],
)
def test_moving_a_letter_over_a_border_changes_the_identity(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    """("a", "bc") is not ("ab", "c")."""
    assert chunk_id(*one) != chunk_id(*other)


def test_an_identity_is_sha256_over_the_length_prefixed_parts() -> None:
    """Each part in UTF-8 behind its length in eight bytes: the same on every machine and in every version."""
    encoded = b"".join(len(part).to_bytes(8, "big") + part for part in (b"acme", "höhe".encode(), b"#0"))
    assert chunk_id("acme", "höhe", "#0") == hashlib.sha256(encoded).hexdigest()


@pytest.mark.parametrize(
    ("changed", "embeds", "writes"),
    [
        (built(), False, False),
        (built({"content": "anders"}), True, True),
        (built({"title": "anders"}), True, True),
        (built(fingerprint="fp2"), True, False),
        (built(allowed_roles=["board"]), False, True),
        (built(allowed_subjects=["ada"]), False, True),
        (built(metadata={"x": 1}), False, True),
        (built({"metadata": {"x": 1}}), False, True),
        (built(importance=0.5), False, True),
        (built(tags=["a"]), False, True),
        (built(category="c"), False, True),
        (built(language="de"), False, True),
        (built(title="Document"), False, True),
        (built(source="other"), False, True),
        (built({"ordinal": 1}), False, True),
    ],
)
def test_what_embeds_again_and_what_only_writes_again(changed: Record, embeds: bool, writes: bool) -> None:
    """`embed_hash` covers text and fingerprint; `record_hash` covers every stored field."""
    first = built()
    assert (changed.embed_hash != first.embed_hash) is embeds
    assert (changed.record_hash != first.record_hash) is writes


def test_the_order_of_roles_does_not_matter() -> None:
    """Permissions are sets: another order or a repetition is no change."""
    assert built(allowed_roles=["b", "a", "b"]) == built(allowed_roles=["a", "b"])


def test_the_order_of_metadata_does_not_matter() -> None:
    """The same mapping written in another order is no change."""
    assert built(metadata={"a": 1, "b": 2}).record_hash == built(metadata={"b": 2, "a": 1}).record_hash


def test_the_same_text_in_two_tenants_has_one_embed_hash_and_two_identities() -> None:
    """Reuse is looked up within a tenant; identity never crosses it."""
    one, other = built(), built(tenant="globex")
    assert one.embed_hash == other.embed_hash
    assert one.id != other.id


def test_metadata_of_the_chunk_wins_over_the_documents() -> None:
    """A chunk may say better."""
    assert built({"metadata": {"x": 2}}, metadata={"x": 1, "y": 1}).metadata == {"x": 2, "y": 1}


def test_the_text_is_the_configured_fields_and_identifiers_come_from_it() -> None:
    """One field a line; identifiers are those of title and content."""
    found = built({"title": "POL-55012", "content": "pH messen"})
    assert found.text == "POL-55012\npH messen"
    assert found.identifiers == ("pol-55012", "ph")


@pytest.mark.parametrize("metadata", [{"a": {1: "x", "b": "y"}}, {"a": {True: 1, "b": 2, None: 3}}, {"a": [{2: 1, "x": 1}]}])
def test_metadata_with_keys_of_several_kinds_is_no_error(metadata: dict[str, Any]) -> None:
    """YAML allows keys that are no strings: such a document must not stop a whole run."""
    assert built(metadata=metadata).record_hash
