"""What the lexical leg understands: German and English, codes and numbers, and every text as text only."""

from __future__ import annotations

import pytest

from knowledge.adapters.analysis import ANALYZERS, MAX_QUERY_WORDS, Analyzer
from knowledge.adapters.opensearch_mapping import text_analysis
from knowledge.adapters.stopwords import ENGLISH, GERMAN
from knowledge.ports import Backend
from tests.contract.places import READER, TENANT, Asked, OpenSearchPlace, lexical, record


@pytest.mark.parametrize(
    ("written", "question"),
    [
        ("Die Blätter der Pflanze", "Blaetter"),
        ("Die Blaetter der Pflanze", "Blätter"),
        ("Die Blätter der Pflanze", "BLATT"),
        ("Größe des Topfes", "Groesse"),
        ("Groesse des Topfes", "Größe"),
        ("GRÖSSE des Topfes", "größe"),
        ("Gießen mit Maß", "giessen"),
        ("Giessen mit Mass", "gießen"),
        ("Düngung im Frühjahr", "Duengung fruehjahr"),
        ("Duengung im Fruehjahr", "Düngung"),
        ("neue Erde", "neue"),
        ("Quelle und Steuer", "quelle"),
        ("Bäume am Fenster", "Baum"),
    ],
)
async def test_german_words_find_each_other(backend: Backend, asked: Asked, written: str, question: str) -> None:
    """Umlauts and their spelled-out forms are one, in both directions; endings do not matter."""
    await backend.write(TENANT, [record("a", written), record("b", "etwas ganz anderes")], [])
    assert await asked.ids(lexical(question)) == ["a"]
    assert await asked.ids(lexical(question, language="de")) == ["a"]


@pytest.mark.parametrize(("written", "question"), [("watering the plants", "plant waters"), ("leaves turning yellow", "yellow leaf's")])
async def test_english_endings_do_not_matter(backend: Backend, asked: Asked, written: str, question: str) -> None:
    """English passages are stemmed as English."""
    await backend.write(TENANT, [record("a", written, language="en-GB"), record("b", "something else", language="en")], [])
    assert await asked.ids(lexical(question, language="en")) == ["a"]


@pytest.mark.parametrize("language", ["de", "en", "fr"])
@pytest.mark.parametrize(
    ("written", "question"),
    [
        ("Der pH-Wert sinkt", "pH"),
        ("Der pH-Wert sinkt", "ph wert"),
        ("EC messen", "EC"),
        ("EC-Wert messen", "ec"),
        ("N und K fehlen", "N"),
        ("ein Wert von 6.2 ist gut", "6.2"),
        ("ein Wert von 6,2 ist gut", "6,2"),
        ("Artikel POL-55012 passt", "POL-55012"),
        ("Artikel 00123 passt", "00123"),
        ("Norm 2024/118", "118"),
        ("Crème brûlée", "creme"),
    ],
)
async def test_short_terms_and_numbers_survive(backend: Backend, asked: Asked, language: str, written: str, question: str) -> None:
    """Neither stop words nor stemming nor splitting take away what a diagnosis hangs on, in any language."""
    others = [record("b", "6 Liter und 2 Stäbe", language=language), record("c", "62 Blumen, 12300", language=language)]
    await backend.write(TENANT, [record("a", written, language=language), *others], [])
    assert (await asked.ids(lexical(question)))[0] == "a"
    if question in ("6.2", "6,2", "00123"):
        assert await asked.ids(lexical(question)) == ["a"]


async def test_a_language_chooses_fields_and_none_chooses_all(backend: Backend, asked: Asked) -> None:
    """Without a language every passage can be found, best score first; with one, those of its own field and the plain one."""
    await backend.write(
        TENANT,
        [
            record("de", "Orchidee Orchidee", language="de-AT"),
            record("en", "Orchidee in a long English sentence about many other things", language="en"),
            record("fr", "Orchidee en français", language="fr"),
            *(record(f"{language}{index}", "x", language=language) for language in ("de", "en", "fr") for index in range(3)),
        ],
        [],
    )
    assert set(await asked.ids(lexical("Orchidee"))) == {"de", "en", "fr"}
    assert set(await asked.ids(lexical("Orchidee", language="de"))) == {"de", "fr"}
    assert set(await asked.ids(lexical("Orchidee", language="en"))) == {"en", "fr"}
    assert await asked.ids(lexical("Orchidee", language="es")) == ["fr"]
    scores = [hit.score for hit in await asked.hits(lexical("Orchidee"))]
    assert scores == sorted(scores, reverse=True)
    assert min(scores) > 0


async def test_any_term_finds_and_rare_terms_count_more(backend: Backend, asked: Asked) -> None:
    """The terms are alternatives, and BM25 weighs them."""
    common = [record(f"c{index}", "wasser pflanze") for index in range(8)]
    await backend.write(TENANT, [*common, record("rare", "wasser zikade"), record("none", "stein")], [])
    found = await asked.ids(lexical("wasser zikade"))
    assert found[0] == "rare"
    assert set(found) == {"rare", *(one.id for one in common)}


@pytest.mark.parametrize("question", ["", " \n\t", "der die das und für fuer über ueber", "?!", "\u200b", "()", "\x00", "...", "🙂"])
async def test_a_question_without_a_term_finds_nothing(backend: Backend, asked: Asked, question: str) -> None:
    """Stop words alone, punctuation alone: no hit, and no failure."""
    await backend.write(TENANT, [record("a", "der die das und für etwas")], [])
    assert await asked.ids(lexical(question, language="de")) == []
    assert await asked.ids(lexical(question, language="xx")) == []


@pytest.mark.parametrize(
    "question",
    [
        '"',
        "'",
        '"orchidee',
        'orchidee"',
        "orchidee*",
        "^orchidee",
        "orchidee AND",
        "AND OR NOT orchidee",
        "NEAR(orchidee",
        "NEAR(orchidee stein, 2)",
        "text : orchidee",
        "{!lucene} orchidee",
        "{text} : orchidee",
        "orchidee)",
        "((orchidee",
        "-orchidee",
        "+orchidee",
        "orchidee~2",
        "orchidee; DROP TABLE passages; --",
        "orchidee' OR 1=1 --",
        "orchidee\x00 versteckt",
        "\ud800 orchidee",
        "orchidee \udfff\ud800",
        "${jndi:ldap://x} orchidee",
        "orchidee\\",
        "/orchidee/",
        "[orchidee TO *]",
        '{"query": {"match_all": {}}} orchidee',
    ],
)
async def test_a_question_is_text_and_no_syntax(backend: Backend, asked: Asked, question: str) -> None:
    """Operators of either engine are words or nothing: never an error, never more hits than the words have."""
    await backend.write(TENANT, [record("a", "Orchidee am Fenster"), record("b", "Kaktus"), record("c", "Farn")], [])
    expected = ["a"] if "orchidee" in question else []
    assert await asked.ids(lexical(question)) == expected


async def test_long_texts_go_in_and_are_found(backend: Backend, asked: Asked) -> None:
    """100 kB of words, 100 kB in one word, and a question of 4096 characters."""
    words = " ".join(f"wort{index}" for index in range(12_000))
    assert await backend.write(TENANT, [record("long", words), record("one", "x" * 100_000), record("other", "Kaktus")], []) == []
    assert await asked.ids(lexical("wort11999")) == ["long"]
    assert await asked.ids(lexical("x" * 255)) == ["one"]
    many = " ".join(f"q{index}" for index in range(MAX_QUERY_WORDS - 1))
    assert await asked.ids(lexical(f"{many} kaktus")) == ["other"]
    assert await asked.ids(lexical(" ".join(f"{index} z" for index in range(1000))[:4096])) == []


@pytest.mark.opensearch
async def test_the_stop_words_are_those_of_lucene(opensearch_url: str) -> None:
    """Both lists, word by word, against the node's own; and each analyzer of the index takes out the same."""
    place = OpenSearchPlace(opensearch_url)

    def left(chain: list[object], text: str) -> list[str]:
        answer = place.call("POST", "_analyze", {"tokenizer": "whitespace", "filter": chain, "text": text})
        return [token["token"] for token in answer["tokens"]]

    for name, words in (("_german_", GERMAN), ("_english_", ENGLISH)):
        assert left([{"type": "stop", "stopwords": name}], " ".join(sorted(words))) == []
    filters = text_analysis()["filter"]
    chain = ["lowercase", "asciifolding", "german_normalization", filters["knowledge_de_stop"]]
    assert left(chain, " ".join(sorted(GERMAN)) + " fuer ueber koennen pH EC N") == ["ph", "ec", "n"]


@pytest.mark.opensearch
async def test_both_backends_cut_and_fold_alike(opensearch_url: str) -> None:
    """The terms before stemming are the same, so that a move from one backend to the other changes no question."""
    place = OpenSearchPlace(opensearch_url)
    text = "Der pH-Wert 6.2 (6,2), N/P; POL-55012 a.b_c don't Größe GROESSE Aloë 2024/118 Blätter neue Quelle Baeume x²"
    for name in ANALYZERS:
        own = text_analysis()
        chain = [own["filter"].get(one, one) for one in own["analyzer"][f"knowledge_{name}"]["filter"] if not one.endswith("_stem")]
        answer = place.call("POST", "_analyze", {"tokenizer": "standard", "filter": chain, "text": text})
        analyzer = Analyzer(name)
        analyzer._stemmer = None
        assert [token["token"] for token in answer["tokens"]] == list(analyzer.terms(text))


async def test_terms_of_other_tenants_are_not_found(backend: Backend, asked: Asked) -> None:
    """A word that only another tenant has finds nothing."""
    await backend.write("other", [record("x", "einhorn", tenant="other")], [])
    assert await asked.ids(lexical("einhorn", READER)) == []
