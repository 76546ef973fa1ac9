"""Random corpora, identities and requests for the property tests: small vocabularies, so that ties and clashes happen."""

from collections.abc import Sequence

from hypothesis import strategies as st

from knowledge.models import Identity, Query, Record, Scope
from services.knowledge.tests.fakes import record
from services.knowledge.tests.serving import query

VOCABULARY = (
    "wasser",
    "licht",
    "gelb",
    "blatt",
    "POL-55012",
    "POL-55021",
    "00123",
    "123",
    "pH",
    "6.2",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
)
ROLES = ("reader", "editor", "admin")
SUBJECTS = ("ada", "bob")
TENANTS = ("acme", "globex")
CATEGORIES = ("x", "y")

texts = st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=4).map(" ".join)
identities = st.builds(Identity, st.sampled_from(TENANTS), st.sampled_from(SUBJECTS), st.frozensets(st.sampled_from(ROLES), max_size=2))
filters = st.dictionaries(
    st.sampled_from(["category", "language"]), st.lists(st.sampled_from(["x", "y", "de", "en"]), min_size=1, max_size=2), max_size=1
).map(lambda found: tuple((name, tuple(values)) for name, values in found.items()))


@st.composite
def corpora(draw: st.DrawFn, *, max_size: int = 14, readable: bool = False) -> list[Record]:
    """Records of two tenants with random permissions; with `readable` all are visible to a reader of acme."""
    names = draw(st.lists(st.integers(0, 999), unique=True, max_size=max_size))
    return [
        record(
            f"{name:03}",
            draw(texts),
            tenant="acme" if readable else draw(st.sampled_from(TENANTS)),
            allowed_roles=("reader",) if readable else tuple(draw(st.sets(st.sampled_from(ROLES), max_size=2))),
            allowed_subjects=() if readable else tuple(draw(st.sets(st.sampled_from(SUBJECTS), max_size=1))),
            category=draw(st.sampled_from(CATEGORIES)),
            language=draw(st.sampled_from(["de", "en"])),
        )
        for name in names
    ]


@st.composite
def requests(draw: st.DrawFn, *, top_k: int | None = None, scoped: bool | None = None) -> Query:
    """A query with or without sub-queries, filters and scopes."""
    wanted = top_k or draw(st.integers(1, 50))
    with_scopes = draw(st.booleans()) if scoped is None else scoped
    base = draw(filters)
    scopes: Sequence[Scope] = ()
    if with_scopes:
        scopes = [
            Scope(f"s{number}", base + draw(filters), top_k or draw(st.integers(1, 50)), None) for number in range(draw(st.integers(1, 3)))
        ]
    sub_queries = tuple(dict.fromkeys(draw(st.lists(texts, max_size=2))))
    return query(draw(texts), top_k=wanted, sub_queries=sub_queries, scopes=tuple(scopes), filters=base)
