"""Synonyms of a query: what is searched in place of a word, found by terms, so that case, umlauts and endings do not matter.

A word and its synonyms count once, by the best of them in each passage. Both backends search what is found here, each in its own way.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from knowledge.adapters.analysis import ANALYZERS, Analyzer, query_words, words
from knowledge.lexicon import Synonym

MAX_SYNONYM_WORDS = 64
"""Words that synonyms add to a query at most, in each field: with `MAX_QUERY_WORDS`, three fields stay below Lucene's 1024 clauses.

Words beyond that are searched as they are written.
"""

Terms = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Expansion:
    """What is searched in one field.

    Args:
        words: each counts.
        groups: of each the best phrase counts; of a phrase all words must be there.
    """

    words: Sequence[str]
    groups: Sequence[tuple[str, ...]] = ()


@dataclass(slots=True)
class _Rule:
    """What is searched for one phrase: itself or not, and others by their terms."""

    itself: bool
    others: dict[Terms, str]


class Synonyms:
    """The rules in one field. Not for several threads at once: neither is the analyzer."""

    def __init__(self, rules: Iterable[Synonym], analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        merged: dict[Terms, _Rule] = {}
        for rule in rules:
            searched = {terms: phrase for phrase in rule.searched if (terms := self._terms(phrase))}
            for terms in filter(None, map(self._terms, rule.asked)):
                found = merged.setdefault(terms, _Rule(itself=False, others={}))
                found.itself |= terms in searched
                found.others |= {other: phrase for other, phrase in searched.items() if other != terms}
        self._rules = {terms: rule for terms, rule in merged.items() if rule.others}
        lengths: dict[str, set[int]] = {}
        for terms in self._rules:
            lengths.setdefault(terms[0], set()).add(len(terms))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}

    def _terms(self, phrase: str) -> Terms:
        return tuple(self._analyzer.terms(phrase))

    def expand(self, text: str) -> Expansion:
        """What a query searches. From left to right, and at each place by the rule of the longest phrase."""
        asked = [(word, term) for word in words(text) if (term := self._analyzer.term(word))] if self._rules else []
        terms = [term for _, term in asked]
        plain: list[str] = []
        groups: dict[frozenset[Terms], tuple[str, ...]] = {}
        left = MAX_SYNONYM_WORDS
        at = 0
        while at < len(asked):
            length, rule = self._match(terms, at)
            here = [word for word, _ in asked[at : at + length]]
            at += length
            phrases = self._phrases(" ".join(here), rule) if rule else {}
            size = sum(map(len, phrases))
            if not phrases or size > left:
                plain += here
            elif (key := frozenset(phrases)) not in groups:
                groups[key] = tuple(phrases.values())
                left -= size
        return Expansion(query_words(" ".join(plain) if groups else text), tuple(groups.values()))

    def _match(self, terms: Sequence[str], at: int) -> tuple[int, _Rule | None]:
        """How many of the terms from a place on a rule takes, and the rule; one and none where there is no rule."""
        for length in self._lengths.get(terms[at], ()):
            if rule := self._rules.get(tuple(terms[at : at + length])):
                return length, rule
        return 1, None

    def _phrases(self, asked: str, rule: _Rule) -> dict[Terms, str]:
        """What is searched by its terms. The words of the query stay as they are written: endings are the engine's to take off."""
        return ({self._terms(asked): asked} if rule.itself else {}) | rule.others


def synonyms_of(rules: Sequence[Synonym]) -> Mapping[str, Synonyms]:
    """The rules in each field, with analyzers of their own."""
    return {name: Synonyms(rules, Analyzer(name)) for name in ANALYZERS}


def phrases_of(groups: Sequence[tuple[str, ...]]) -> Iterator[tuple[int, str]]:
    """(number of the group from 1, phrase), all in a row."""
    for number, group in enumerate(groups, start=1):
        for phrase in group:
            yield number, phrase
