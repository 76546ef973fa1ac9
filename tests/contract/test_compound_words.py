"""German compounds: a passage that holds one is found by its parts, in both backends alike, and never the other way round."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from knowledge.adapters.analysis import DE, EN, Analyzer, compound_words
from knowledge.adapters.embedded_schema import connect
from knowledge.adapters.opensearch_mapping import text_analysis
from knowledge.errors import IndexMismatch
from knowledge.lexicon import NO_LEXICON, Lexicon
from knowledge.models import Verdict
from knowledge.ports import Backend
from tests.contract.places import DIMENSION, FINGERPRINT, TENANT, Asked, EmbeddedPlace, OpenSearchPlace, Place, lexical, record

WORDS = ("Stickstoff", "Stoff", "Mangel", "Dünger", "Blatt", "Blätter", "Rand", "Wurzel", "Fäule", "Erde", "Symptom", "Strassenbaum")
LEXICON = Lexicon(compound_words=WORDS)
SEVERAL = """
Stickstoffmangel Stickstoffmangelsymptome Mangel Blattrand Blätterfall Wurzelfäule WURZELFAEULE Blumenerde Erde Stickstoffdünger
Stickstoffduenger Rand Randnotiz pH-Wert NPK-Dünger Straßenbäume Straßenbaum für Mangelerscheinung Donaudampfschifffahrtsgesellschaft 6.2 x
Stofftasche mangelmangel Blaettermangel Düngermangel Sofaecke 2Mangel Mangel2024 don't Stoff-Rest
"""


@pytest.fixture
async def backend(place: Place) -> AsyncIterator[Backend]:
    """An opened backend with a list of words."""
    opened = place.connect(lexicon=LEXICON)
    await opened.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    yield opened
    await opened.aclose()


async def fill(backend: Backend, **texts: str) -> None:
    """One passage a text, and some that hold none of the words, so that all of them are rare."""
    others = [record(f"other{number}", f"etwas anderes {number}") for number in range(9)]
    assert await backend.write(TENANT, [*(record(name, text) for name, text in texts.items()), *others], []) == []


@pytest.mark.parametrize(
    ("written", "question"),
    [
        ("Ein Stickstoffmangel zeigt sich früh", "Mangel"),
        ("Ein Stickstoffmangel zeigt sich früh", "Mängel"),
        ("Ein Stickstoffmangel zeigt sich früh", "stickstoff"),
        ("Ein Stickstoffmangel zeigt sich früh", "Stickstoffmangel"),
        ("Stickstoffmangelsymptome", "Symptome"),
        ("Der Stickstoffdünger", "Dünger"),
        ("Der Stickstoffduenger", "Dünger"),
        ("Der Stickstoffdünger", "Duenger"),
        ("Wurzelfäule", "Faeule"),
        ("Wurzelfaeule", "Fäule"),
        ("BLATTRAND", "blattes"),
        ("Alte Straßenbäume, ein Straßenbaum", "Strassenbaum"),
    ],
)
async def test_a_compound_is_found_by_its_parts(backend: Backend, asked: Asked, written: str, question: str) -> None:
    """However list, passage and question spell an umlaut; parts take endings like words; the whole word stays."""
    await fill(backend, a=written, b="Wasser und Licht")
    assert await asked.ids(lexical(question)) == ["a"]
    assert await asked.ids(lexical(question, language="de")) == ["a"]


async def test_a_question_is_not_split(backend: Backend, asked: Asked) -> None:
    """Who asks for nitrogen deficiency does not mean deficiencies: of their own, the parts are for the vector leg and for synonyms."""
    await fill(backend, part="Mangel", both="Stickstoff im Mangel", other="Kaliummangel")
    assert await asked.ids(lexical("Stickstoffmangel")) == []


async def test_a_word_stands_above_a_compound_that_holds_it(backend: Backend, asked: Asked) -> None:
    """And the very compound above those that share a part."""
    await fill(backend, a_part="Ein Stickstoffmangel ist hier", word="Ein Mangel ist hier", z_other="Ein Kaliummangel ist hier")
    assert (await asked.ids(lexical("Mangel")))[0] == "word"
    assert set(await asked.ids(lexical("Mangel"))) == {"word", "a_part", "z_other"}
    assert (await asked.ids(lexical("Stickstoffmangel Mangel")))[0] == "a_part"


async def test_parts_do_not_make_a_passage_longer(backend: Backend, asked: Asked) -> None:
    """Two passages of three words weigh a word alike, whether or not the other words are compounds."""
    await fill(backend, a="Stickstoffdünger Wurzelfäule Orchidee", b="Kaliumsalz Schimmelpilz Orchidee")
    first, second = await asked.hits(lexical("Orchidee"))
    assert first.score == pytest.approx(second.score)


async def test_only_german_is_split(backend: Backend, asked: Asked) -> None:
    """English and other passages stay as they are."""
    for name, language in (("a", "en"), ("b", "fr"), ("c", "de-AT")):
        await backend.write(TENANT, [record(name, "Stickstoffmangel", language=language)], [])
    assert await asked.ids(lexical("Mangel")) == ["c"]


async def test_an_index_of_another_list_stops_the_start(place: Place) -> None:
    """No list, another list, or a list where there was none: the sentence names the setting and two ways out."""
    lexicons = [NO_LEXICON, LEXICON, Lexicon(compound_words=(*WORDS, "Kalium"))]
    for number, built in enumerate(lexicons):
        backend = place.connect(lexicon=built)
        await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
        for other in lexicons[number + 1 :] + lexicons[:number]:
            turned_away = place.connect(lexicon=other)
            with pytest.raises(IndexMismatch, match=r"GERMAN_COMPOUND_WORDS_FILE as it was, or (name a new file|run `knowledge reindex`)"):
                await turned_away.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
            assert not await turned_away.ready()
            await turned_away.aclose()
        assert await backend.ready()
        await backend.aclose()
        await _clear(place)


async def _clear(place: Place) -> None:
    if isinstance(place, EmbeddedPlace):
        for file in place.path.parent.iterdir():
            await asyncio.to_thread(file.unlink)
    else:
        place.remove()


async def test_the_order_of_the_list_does_not_matter(place: Place, backend: Backend) -> None:
    """Nor do repetitions, capitals, or the spelling of an umlaut."""
    same = place.connect(lexicon=Lexicon(compound_words=(*(word.upper() for word in reversed(WORDS)), "Duenger")))
    await same.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    await same.aclose()


async def test_the_doctor_says_that_words_are_split(backend: Backend) -> None:
    """And finds nothing wrong."""
    await backend.write(TENANT, [record("a")], [])
    findings = await backend.examine()
    assert not [finding for finding in findings if finding.verdict is Verdict.BROKEN]
    assert [finding.subject for finding in findings].count("compound words") == 1


@pytest.mark.opensearch
async def test_both_backends_split_alike(opensearch_url: str) -> None:
    """Every term before stemming, and which of them share a place, on Lucene's own filter."""
    place = OpenSearchPlace(opensearch_url)
    compounds = compound_words(WORDS)
    own = text_analysis(compounds)
    for name in (DE, EN):
        chain = [own["filter"].get(one, one) for one in own["analyzer"][f"knowledge_{name}"]["filter"] if not one.endswith("_stem")]
        answer = place.call("POST", "_analyze", {"tokenizer": "standard", "filter": chain, "text": SEVERAL})
        theirs: dict[int, list[str]] = {}
        for token in answer["tokens"]:
            theirs.setdefault(token["position"], []).append(token["token"])
        analyzer = Analyzer(name, compounds)
        analyzer._stemmer = None
        assert [tuple(tokens) for _, tokens in sorted(theirs.items())] == list(analyzer.tokens(SEVERAL))


async def test_parts_stand_at_the_place_of_their_word(tmp_path: Path) -> None:
    """Seen in the file itself: a phrase may end in a part and go on behind it, and the passage is three words long."""
    place = EmbeddedPlace(tmp_path)
    backend = place.connect(lexicon=LEXICON)
    await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    await backend.write(TENANT, [record("a", "roter Stickstoffmangel hier oben")], [])
    await backend.aclose()
    connection = connect(place.path, busy_timeout_s=1, writer=False)
    red, lack, above = Analyzer(DE).terms("roter Mangel oben")
    lengths: list[int] = []

    def length_of(api: apsw.FTS5ExtensionApi, *_: object) -> None:
        lengths.append(api.column_size(0))

    connection.register_fts5_function("length_of", length_of)
    statement = "SELECT length_of(text_de) FROM text_de WHERE text_de MATCH ?"
    assert len(list(connection.execute(statement, (f'"{red}" + "{lack}" + "{above}"',)))) == 1
    assert lengths == [3]
    connection.close()
