"""The things the gateway speaks of."""

from typing import Any

import pytest

from knowledge.models import Embeddings, Identity, Visibility, join_text


@pytest.mark.parametrize(
    ("fields", "metadata", "expected"),
    [
        (("title", "content"), {}, "T\nC"),
        (("content",), {}, "C"),
        (("content", "title"), {}, "C\nT"),
        (("title", "note", "content"), {"note": "N"}, "T\nN\nC"),
        (("title", "missing", "content"), {}, "T\nC"),
        (("note", "content"), {"note": "  "}, "C"),
        (("note",), {"note": ["a", 5]}, "a, 5"),
        (("note",), {"note": []}, ""),
        (("note",), {"note": 0}, "0"),
        (("note",), {"note": None}, ""),
    ],
)
def test_the_joined_text(fields: tuple[str, ...], metadata: dict[str, Any], expected: str) -> None:
    """The configured fields, one a line, in their order; blanks left out; lists with commas; 0 is a value."""
    assert join_text(fields, "T", "C", metadata) == expected


def test_metadata_cannot_stand_in_for_title_or_content() -> None:
    """The document's own fields win over metadata of the same name."""
    assert join_text(("title", "content"), "T", "C", {"title": "X", "content": "Y"}) == "T\nC"


def test_visibility_is_the_identity() -> None:
    """Tenant, subject and roles, nothing added and nothing lost."""
    identity = Identity("acme", "ada", frozenset({"a", "b"}))
    assert Visibility.of(identity) == Visibility("acme", "ada", frozenset({"a", "b"}))


@pytest.mark.parametrize(
    ("tenant", "roles", "subjects", "visible"),
    [
        ("acme", ["reader"], [], True),
        ("acme", ["board", "reader"], [], True),
        ("acme", [], ["ada"], True),
        ("acme", ["board"], ["ada"], True),
        ("acme", [], [], False),
        ("acme", ["board"], ["bob"], False),
        ("globex", ["reader"], ["ada"], False),
        ("ACME", ["reader"], [], False),
        ("acme", ["Reader"], [], False),
        ("acme", ["ada"], ["reader"], False),
    ],
)
def test_the_permission_rule(tenant: str, roles: list[str], subjects: list[str], visible: bool) -> None:
    """Tenant AND (a role in common OR the subject); case counts; roles and subjects are not mixed up."""
    rule = Visibility("acme", "ada", frozenset({"reader", "editor"}))
    assert rule.allows(tenant=tenant, allowed_roles=roles, allowed_subjects=subjects) is visible


def test_empty_roles_never_widen() -> None:
    """An identity without roles sees only what names it."""
    nobody = Visibility("acme", "ada", frozenset())
    assert not nobody.allows(tenant="acme", allowed_roles=[], allowed_subjects=[])
    assert not nobody.allows(tenant="acme", allowed_roles=[""], allowed_subjects=[])
    assert nobody.allows(tenant="acme", allowed_roles=[], allowed_subjects=["ada"])


def test_the_dimension_of_embeddings() -> None:
    """The length of each vector; nothing has none."""
    assert Embeddings(((1.0, 2.0, 3.0),), "m", "f").dimension == 3
    assert Embeddings((), "m", "f").dimension == 0
