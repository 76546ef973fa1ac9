"""The files of compound words and synonyms: what they may hold, and which line is named when they hold something else."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge.adapters.analysis import DE, STD, Analyzer, compound_words, fold_german
from knowledge.adapters.compounds import MAX_PART, MIN_WORD, NO_COMPOUND_WORDS, CompoundWords
from knowledge.adapters.synonyms import MAX_SYNONYM_WORDS, Expansion, Synonyms
from knowledge.app import DISTRIBUTION, new_backend
from knowledge.lexicon import LONGEST_WORD, Lexicon, LexiconError, Synonym, read_compound_words, read_lexicon, read_synonyms
from knowledge.settings import SearchSettings
from knowledge.telemetry import SERVICE
from servicekit.telemetry import set_up_telemetry
from tests.contract.places import DIMENSION, FINGERPRINT, TENANT, lexical, record


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a file will be."""
    return tmp_path / "words.txt"


def test_words_are_read_one_a_line(file: Path) -> None:
    """Comments, blank lines, Windows line ends, a byte order mark and decomposed umlauts do not matter."""
    file.write_bytes("\ufeff# list\r\n\r\nStickstoff\r\n  Mangel  # part\r\nDu\u0308nger\r\nMangel\r\n".encode())
    assert read_compound_words(file) == ("Stickstoff", "Mangel", "Dünger")


def test_the_list_of_the_house_plants_is_one() -> None:
    """The example can be named as it is."""
    assert "Stickstoff" in read_compound_words(Path("examples/houseplants/compound-words.txt"))


@pytest.mark.parametrize("line", ["zwei Worte", "mit-strich", "a", "x" * (LONGEST_WORD + 1), "a,b", "a => b", "don't", "🙂🙂"])
def test_a_line_that_is_no_word_is_named(file: Path, line: str) -> None:
    """By its number, and without repeating it."""
    file.write_text(f"# one\nMangel\n{line}\n", encoding="utf-8")
    with pytest.raises(LexiconError, match=r"^line 3 is not one word of 2 to 40 letters$"):
        read_compound_words(file)


def test_the_longest_word_of_a_list_is_looked_for() -> None:
    """No word is taken that could never be found."""
    assert LONGEST_WORD == MAX_PART


def test_synonyms_are_read_by_rule(file: Path) -> None:
    """Both forms, spaces and repetitions aside."""
    file.write_text("# rules\nDünger ,  NPK  Salz,Dünger\n\na, b  c =>d # one way\n", encoding="utf-8")
    assert read_synonyms(file) == (
        Synonym(("Dünger", "NPK Salz"), ("Dünger", "NPK Salz")),
        Synonym(("a", "b c"), ("d",)),
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Dünger", "one synonym only"),
        ("Dünger, Dünger", "one synonym only"),
        ("a, , b", "names nothing"),
        ("a, b,", "names nothing"),
        ("a =>", "names nothing"),
        ("=> b", "names nothing"),
        ("a => ?!", "names nothing"),
        ("a => b => c", "more than one =>"),
        (r"a\,b, c", "backslash"),
    ],
)
def test_a_rule_that_is_none_is_named(file: Path, line: str, words: str) -> None:
    """By its number."""
    file.write_text(f"x, y\n{line}\nz, u\n", encoding="utf-8")
    with pytest.raises(LexiconError, match=rf"^line 2 .*{words}"):
        read_synonyms(file)


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    """Absent, a folder, another encoding."""
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(LexiconError, match="cannot be read"):
            read_synonyms(path)
    latin = tmp_path / "latin"
    latin.write_bytes("Dünger".encode("latin-1"))
    with pytest.raises(LexiconError, match="not UTF-8"):
        read_compound_words(latin)


def test_no_file_is_no_rule() -> None:
    """The default."""
    assert read_lexicon(None, None) == Lexicon()


@given(st.text("abc", max_size=12), st.frozensets(st.text("abc", min_size=2, max_size=6)))
def test_parts_stand_in_the_token_one_after_the_other(token: str, words: frozenset[str]) -> None:
    """Whatever token and list: words of the list, in order, without overlap; one is found wherever there is any."""
    found = list(CompoundWords(words).parts(token))
    at = 0
    for part in found:
        assert part in words
        at = token.index(part, at) + len(part)
    assert bool(found) == (len(token) >= MIN_WORD and any(word in token for word in words))


def test_parts_of_a_word() -> None:
    """The longest counts; the list is folded like the text; other languages are never split."""
    compounds = compound_words(["Stickstoff", "Stoff", "Mängel", "MANGEL", "Dünger"])
    assert list(compounds.parts(fold_german("Stickstoffmangel"))) == ["stickstoff", "mangel"]
    assert list(compounds.parts(fold_german("Stoffduenger"))) == ["stoff", "dunger"]
    assert list(NO_COMPOUND_WORDS.parts("stickstoff")) == []
    assert list(Analyzer(STD, compounds).tokens("Stoffdünger")) == [("stoffdunger",)]
    assert list(Analyzer(DE, compounds).tokens("über die Stoffe")) == [("stoff", "stoff")]
    assert NO_COMPOUND_WORDS.digest == ""
    assert compounds.digest == compound_words(["mangel", "Duenger", "stoff", "STICKSTOFF"]).digest != compound_words(["mangel"]).digest


def rules(*given: str) -> Synonyms:
    """Rules of the German field, as lines."""
    found = []
    for line in given:
        sides = [tuple(part.strip() for part in side.split(",")) for side in line.split("=>")]
        found.append(Synonym(sides[0], sides[-1]))
    return Synonyms(found, Analyzer(DE))


def test_a_question_without_a_rule_stays_as_it_is() -> None:
    """Stop words included."""
    assert rules("Dünger, Salz").expand("Der Topf, der Topf") == Expansion(["Der", "Topf"])
    assert rules().expand("Der Topf") == Expansion(["Der", "Topf"])


def test_the_words_of_the_question_are_searched_as_written() -> None:
    """The rule's own spelling stands for the others only."""
    found = rules("Dünger, Salz").expand("Topf Duenger")
    assert (list(found.words), list(found.groups)) == (["Topf"], [("Duenger", "Salz")])


def test_rules_of_one_phrase_are_put_together_and_not_chained() -> None:
    """`a, b` and `b, c`: a finds b, b finds both, and a does not find c."""
    two = rules("aaa, bbb", "bbb, ccc")
    assert list(two.expand("aaa").groups) == [("aaa", "bbb")]
    assert list(two.expand("bbb").groups) == [("bbb", "aaa", "ccc")]
    assert list(rules("aaa => bbb", "aaa => ccc").expand("aaa").groups) == [("bbb", "ccc")]
    assert list(rules("aaa => aaa, bbb").expand("aaa").groups) == [("aaa", "bbb")]


def test_a_rule_of_two_endings_is_none() -> None:
    """The stemmer does that already."""
    assert list(rules("Topf, Topfes").expand("Topf").groups) == []


def test_synonyms_are_bounded() -> None:
    """Beyond the bound words are searched as written."""
    many = rules(*(f"w{number}, {' '.join(f's{number}x{part}' for part in range(5))}" for number in range(100)))
    found = many.expand(" ".join(f"w{number}" for number in range(100)))
    size = sum(len(phrase.split()) for group in found.groups for phrase in group)
    assert 0 < size <= MAX_SYNONYM_WORDS
    assert len(found.words) + len(found.groups) == 100


async def test_the_settings_reach_the_backend(tmp_path: Path) -> None:
    """Both files, from their names to a hit."""
    words, rules_ = tmp_path / "words.txt", tmp_path / "rules.txt"
    words.write_text("Mangel\n", encoding="utf-8")
    rules_.write_text("Defizit, Mangel\n", encoding="utf-8")
    search = SearchSettings(embedded_path=tmp_path / "index.db", german_compound_words_file=words, synonyms_file=rules_)
    backend = new_backend(search, set_up_telemetry(SERVICE, DISTRIBUTION))
    await backend.open(fingerprint=FINGERPRINT, dimension=DIMENSION)
    await backend.write(TENANT, [record("a", "Stickstoffmangel")], [])
    (result,) = await backend.msearch([lexical("Defizite")], 10.0)
    assert [hit.passage.id for hit in result.hits] == ["a"]
    await backend.aclose()
