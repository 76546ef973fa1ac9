"""Synonyms of a query: single words, phrases, endings and umlauts, one way and both, in both backends alike."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from knowledge.adapters.analysis import MAX_QUERY_WORDS
from knowledge.adapters.synonyms import MAX_SYNONYM_WORDS
from knowledge.lexicon import Lexicon, Synonym
from knowledge.ports import Backend
from tests.contract.places import DIMENSION, FINGERPRINT, TENANT, Asked, Place, lexical, record


def same(*phrases: str) -> Synonym:
    """`a, b`."""
    return Synonym(phrases, phrases)


RULES = (
    same("Dünger", "Nährsalz"),
    same("Chlorose", "gelbe Blätter", "Bleichsucht"),
    Synonym(("NPK", "Volldünger"), ("Stickstoff Phosphor Kalium",)),
    same("watering can", "sprinkler"),
    same("Topf", "Kübel", "Gefäß"),
    Synonym(("Mangel an Stickstoff",), ("Stickstoffmangel",)),
    Synonym(("Chlorose Eisen",), ("Eisenmangel",)),
)


@pytest.fixture
async def backend(place: Place) -> AsyncIterator[Backend]:
    """An opened backend with these rules."""
    opened = place.connect(lexicon=Lexicon(synonyms=RULES))
    await opened.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    yield opened
    await opened.aclose()


async def fill(backend: Backend, language: str = "de", **texts: str) -> None:
    """One passage a text, and some that hold none of the words, so that all of them are rare."""
    others = [record(f"other{number}", f"Wasser Licht {number}", language=language) for number in range(20)]
    assert await backend.write(TENANT, [*(record(name, text, language=language) for name, text in texts.items()), *others], []) == []


@pytest.mark.parametrize(
    ("written", "question"),
    [
        ("etwas Nährsalz", "Dünger"),
        ("etwas Dünger", "Nährsalz"),
        ("etwas Duenger", "Naehrsalze"),
        ("etwas Naehrsalz", "DÜNGERS"),
        ("Chlorose am Fenster", "gelbe Blätter"),
        ("Chlorose am Fenster", "warum gelbes Blatt"),
        ("gelbe Blätter am Fenster", "Chlorose"),
        ("Blaetter, die gelb sind", "Bleichsucht"),
        ("Stickstoff, Phosphor und Kalium", "Volldünger"),
        ("Stickstoffmangel", "Was tun bei Mangel an Stickstoff?"),
    ],
)
async def test_a_synonym_finds(backend: Backend, asked: Asked, written: str, question: str) -> None:
    """In the language of the question and without one."""
    await fill(backend, a=written)
    assert await asked.ids(lexical(question)) == ["a"]
    assert await asked.ids(lexical(question, language="de")) == ["a"]


async def test_english_phrases_have_synonyms_too(backend: Backend, asked: Asked) -> None:
    """With English endings."""
    await fill(backend, "en", a="two sprinklers", b="a can of beans")
    assert await asked.ids(lexical("Watering cans", language="en")) == ["a"]
    await fill(backend, "en", a="use the watering can", b="a can of beans")
    assert await asked.ids(lexical("sprinklers", language="en")) == ["a"]


async def test_a_rule_with_an_arrow_works_one_way(backend: Backend, asked: Asked) -> None:
    """The left side is not searched any more, and the right side never finds it."""
    await fill(backend, left="NPK", right="Stickstoff Phosphor Kalium", half="Kalium")
    assert await asked.ids(lexical("NPK")) == ["right"]
    assert "left" not in await asked.ids(lexical("Stickstoff Phosphor Kalium"))


async def test_of_a_phrase_all_words_must_be_there(backend: Backend, asked: Asked) -> None:
    """Where it is a synonym, and where it was asked for."""
    await fill(backend, one="gelb", other="Blatt", both="gelbes Blatt")
    assert await asked.ids(lexical("Chlorose")) == ["both"]
    assert await asked.ids(lexical("gelbe Blätter")) == ["both"]
    assert set(await asked.ids(lexical("Blätter, gelbe"))) == {"one", "other", "both"}


async def test_the_longest_phrase_decides(backend: Backend, asked: Asked) -> None:
    """And its words have no other synonyms there."""
    await fill(backend, iron="Eisenmangel", pale="Bleichsucht")
    assert await asked.ids(lexical("Chlorose Eisen")) == ["iron"]
    assert await asked.ids(lexical("Chlorose und dann Eisen")) == ["iron"]
    assert await asked.ids(lexical("Eisen Chlorose")) == ["pale"]


async def test_words_and_groups_add_up(backend: Backend, asked: Asked) -> None:
    """Who holds a word and a synonym of another stands above who holds one of them."""
    await fill(backend, a="Nährsalz", b="Orchidee", c="Orchidee Nährsalz")
    assert (await asked.ids(lexical("Dünger Orchidee")))[0] == "c"
    assert set(await asked.ids(lexical("Dünger Orchidee"))) == {"a", "b", "c"}


async def test_synonyms_count_once(backend: Backend, asked: Asked) -> None:
    """A passage that holds all of them is no better than one with the best of them; asking for two is asking once."""
    await fill(backend, one="Topf stein stein", all="Topf Kübel Gefäß", two="Topf Kübel stein")
    scores = {hit.passage.id: hit.score for hit in await asked.hits(lexical("Topf"))}
    assert scores.keys() == {"one", "all", "two"}
    twice = {hit.passage.id: hit.score for hit in await asked.hits(lexical("Topf Kübel Topf"))}
    assert twice == pytest.approx(scores)
    single = max(scores["all"], scores["two"])
    assert single <= max([(await asked.hits(lexical(word, size=50)))[0].score for word in ("Topf", "Kübel", "Gefäß")]) + 1e-6


async def test_without_a_synonym_nothing_changes(place: Place, backend: Backend, asked: Asked) -> None:
    """Order and scores of a question that no rule fits are those of a backend without rules."""
    await fill(backend, a="Orchidee Orchidee", b="Orchidee und Farn", c="Dünger")
    plain = place.connect()
    await plain.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    for question in ("Orchidee", "Orchidee Farn der die das", "gelb", "Blatt", "an Stickstoff Mangel"):
        assert await asked.hits(lexical(question)) == await Asked(plain).hits(lexical(question))
    await plain.aclose()


async def test_rules_change_without_a_new_index(place: Place, backend: Backend, asked: Asked) -> None:
    """They are a matter of the question alone."""
    await fill(backend, a="Nährsalz", b="Substrat")
    other = place.connect(lexicon=Lexicon(synonyms=(same("Dünger", "Substrat"),)))
    await other.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    assert await Asked(other).ids(lexical("Dünger")) == ["b"]
    assert await asked.ids(lexical("Dünger")) == ["a"]
    await other.aclose()


async def test_compounds_and_synonyms_go_together(place: Place) -> None:
    """A synonym finds the part of a compound."""
    both = place.connect(lexicon=Lexicon(compound_words=("Mangel", "Stickstoff"), synonyms=(same("Defizit", "Mangel"),)))
    await both.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    await fill(both, a="Stickstoffmangel")
    assert await Asked(both).ids(lexical("Defizite")) == ["a"]
    await both.aclose()


async def test_a_rule_is_text_and_no_syntax(place: Place) -> None:
    """Operators of either engine in a rule are words or nothing."""
    rules = (same("orchidee", 'AND "OR* NOT (x', "NEAR(y, 2) -z"), same("c++", "C#", "c"), Synonym(("der",), ("Farn",)), same("?a", "?!b"))
    backend = place.connect(lexicon=Lexicon(synonyms=rules))
    await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    await fill(backend, a="orchidee", b="NEAR y 2 z", c="Farn", d="x")
    assert set(await Asked(backend).ids(lexical("orchidee"))) == {"a", "b"}
    assert await Asked(backend).ids(lexical("der", language="de")) == []
    await backend.aclose()


async def test_many_synonyms_stay_below_the_limits_of_the_engines(place: Place) -> None:
    """Words beyond the bound are searched as they are written; no language, so that all fields are searched."""
    rules = tuple(same(f"w{number}", *(f"s{number}x{other}" for other in range(8))) for number in range(400))
    backend = place.connect(lexicon=Lexicon(synonyms=rules))
    await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    await fill(backend, a="s0x7", b="w399", c="s399x0", d=f"w{MAX_QUERY_WORDS - 1}")
    question = " ".join(f"w{number}" for number in range(400))
    found = await Asked(backend).ids(lexical(question))
    assert set(found) == {"a", "d"}
    assert MAX_SYNONYM_WORDS < 400 * 8
    await backend.aclose()
