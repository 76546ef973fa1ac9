"""Text analysis of the lexical leg: words, folding, stop words, stemming. One language family, one analyzer.

Words are those of Unicode's segmentation (UAX#29): `pH-Wert` gives `pH` and `Wert`, `6.2` stays whole. German folds `ä`, `ae` and
`a` to one form as Lucene's GermanNormalizationFilter does, so that each spelling finds the other.
"""

import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache

import apsw.unicode
import Stemmer

from knowledge.adapters.compounds import NO_COMPOUND_WORDS, CompoundWords
from knowledge.adapters.stopwords import ENGLISH, GERMAN

DE, EN, STD = "de", "en", "std"
ANALYZERS = (DE, EN, STD)

ANALYSIS_VERSION = 1
"""Changes whenever a text would give other terms: an index built before does not fit any more."""

WORD_CATEGORIES = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nd", "Nl"})
"""Letters, digits and numerals make a word; a superscript alone does not, as in Lucene."""

MAX_QUERY_WORDS = 256
"""Distinct words of a query that are searched; three fields of them stay below Lucene's limit of 1024 clauses."""

MAX_WORD = 255
"""Longer words are cut into pieces of this length, as Lucene's standard tokenizer does."""


def analyzer_of(language: str | None) -> str:
    """The analyzer for a language tag such as `de`, `de-AT` or `en_US`; the plain one for every other."""
    primary = (language or "").replace("_", "-").split("-", 1)[0].casefold()
    return primary if primary in (DE, EN) else STD


def analyzers_of(language: str | None) -> tuple[str, ...]:
    """The analyzers that a query in `language` searches; all of them where it names none.

    A language chooses fields, it never filters: passages of unknown language stay within reach of every query.
    """
    return ANALYZERS if language is None else tuple(dict.fromkeys((analyzer_of(language), STD)))


def words(text: str) -> Iterator[str]:
    """The words of a text, as written."""
    for word in apsw.unicode.word_iter(text, categories=WORD_CATEGORIES):
        for start in range(0, len(word), MAX_WORD):
            yield word[start : start + MAX_WORD]


def query_words(text: str) -> list[str]:
    """The distinct words of a query, as written, at most `MAX_QUERY_WORDS`."""
    found: dict[str, str] = {}
    for word in words(text):
        found.setdefault(word.casefold(), word)
        if len(found) == MAX_QUERY_WORDS:
            break
    return list(found.values())


def fold(word: str) -> str:
    """One form for upper and lower case, accents and compatibility characters (`ß` becomes `ss`)."""
    apart = unicodedata.normalize("NFKD", word.replace("\u2019", "'").casefold())
    return "".join(character for character in apart if not unicodedata.combining(character) and not character.isspace())


def fold_german(word: str) -> str:
    """`fold`, and `ae`, `oe`, `ue` become the bare vowel, `ue` only where no vowel or q stands before it."""
    folded: list[str] = []
    umlaut = False
    before = ""
    for character in fold(word):
        if character == "e" and umlaut:
            umlaut = False
        else:
            umlaut = character in "ao" or (character == "u" and before not in tuple("aeiouqy"))
            folded.append(character)
        before = character
    return "".join(folded)


def compound_words(listed: Iterable[str]) -> CompoundWords:
    """The words of a list, folded as German tokens are: whichever way a list and a text spell an umlaut, they meet."""
    return CompoundWords(frozenset(map(fold_german, listed)))


CACHED_WORDS = 20_000
"""Words of which an analyzer remembers the term: few words make up most of a text."""


class Analyzer:
    """Turns words into the terms that are indexed and searched. Not for several threads at once: stemmers keep state.

    Args:
        name: one of `ANALYZERS`.
        compounds: what German words are split into when they are indexed; the others are never split.
    """

    def __init__(self, name: str, compounds: CompoundWords = NO_COMPOUND_WORDS) -> None:
        self.name = name
        self._fold = fold_german if name == DE else fold
        stop_words = {DE: GERMAN, EN: ENGLISH}.get(name, frozenset[str]())
        self._stop_words = frozenset(map(self._fold, stop_words))
        language = {DE: "german", EN: "english"}.get(name)
        self._stemmer = Stemmer.Stemmer(language) if language else None
        self._compounds = compounds if name == DE else NO_COMPOUND_WORDS
        self._cached_term = lru_cache(CACHED_WORDS)(self._term)
        self._cached_token = lru_cache(CACHED_WORDS)(self._token)

    def term(self, word: str) -> str | None:
        """The term that a query asks for with a word; None for a stop word."""
        return self._cached_term(word)

    def _term(self, word: str) -> str | None:
        return self._stem(folded) if (folded := self._kept(word)) else None

    def _token(self, word: str) -> tuple[str, ...]:
        folded = self._kept(word)
        # A word that is in the list itself counts twice, as in Lucene: so it stands above a compound that only holds it.
        return tuple(map(self._stem, (folded, *self._compounds.parts(folded)))) if folded else ()

    def _kept(self, word: str) -> str:
        """The folded word; empty for a stop word."""
        folded = self._fold(word)
        return "" if folded in self._stop_words else folded

    def _stem(self, folded: str) -> str:
        if self._stemmer is None or not folded.replace("'", "").isalpha():
            return folded
        return str(self._stemmer.stemWord(folded))

    def terms(self, text: str) -> Iterator[str]:
        """The terms of a query or a phrase, in order, repeated ones included."""
        for word in words(text):
            if term := self.term(word):
                yield term

    def tokens(self, text: str) -> Iterator[tuple[str, ...]]:
        """What is indexed of a text, word by word: its term, then the terms of the parts that stand at the same place."""
        for word in words(text):
            if token := self._cached_token(word):
                yield token
