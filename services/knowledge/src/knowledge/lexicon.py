"""What an operator knows about the words of their documents: parts of German compounds, and synonyms. Read from two plain files.

Both files are UTF-8. `#` begins a comment, blank lines are passed over, and everything else must be right: a line that is not stops
the start, because a rule that silently does nothing is found out months later.
"""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LONGEST_WORD = 40
"""Letters of a word in the list of compound words."""


class LexiconError(ValueError):
    """A file cannot be read, or a line of it cannot be understood; the message names the line."""


@dataclass(frozen=True, slots=True)
class Synonym:
    """One rule: where a query holds one of `asked`, any of `searched` will do.

    Words or phrases of both, as written. In `a, b` they are the same; in `a => b` the left side is searched no more.
    """

    asked: tuple[str, ...]
    searched: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Compound words in the order of the file, and the rules."""

    compound_words: tuple[str, ...] = ()
    synonyms: tuple[Synonym, ...] = ()


NO_LEXICON = Lexicon()


def read_lexicon(compound_words: Path | None, synonyms: Path | None) -> Lexicon:
    """Both files; None for none. Raises LexiconError."""
    return Lexicon(
        read_compound_words(compound_words) if compound_words else (),
        read_synonyms(synonyms) if synonyms else (),
    )


def read_compound_words(path: Path) -> tuple[str, ...]:
    """One word a line, of 2 to 40 letters or digits. Raises LexiconError."""
    words: dict[str, None] = {}
    for number, line in _lines(path):
        if not line.isalnum() or not 2 <= len(line) <= LONGEST_WORD:
            raise LexiconError(f"line {number} is not one word of 2 to {LONGEST_WORD} letters")
        words[line] = None
    return tuple(words)


def read_synonyms(path: Path) -> tuple[Synonym, ...]:
    """Rules in a part of Solr's format: `a, b c` (all the same) or `a, b => c` (the left is searched as the right). Raises LexiconError."""
    return tuple(_synonym(number, line) for number, line in _lines(path))


def _synonym(number: int, line: str) -> Synonym:
    if "\\" in line:
        raise LexiconError(f"line {number} holds a backslash, which this format does not know")
    sides = [tuple(dict.fromkeys(" ".join(part.split()) for part in side.split(","))) for side in line.split("=>")]
    if len(sides) > 2:
        raise LexiconError(f"line {number} holds more than one =>")
    for phrase in (phrase for side in sides for phrase in side):
        if not any(map(str.isalnum, phrase)):
            raise LexiconError(f"line {number} names nothing between two commas or beside the =>")
    if len(sides) == 1 and len(sides[0]) < 2:
        raise LexiconError(f"line {number} names one synonym only; it takes two, or a =>")
    return Synonym(sides[0], sides[-1])


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, text) of each line that says something."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise LexiconError(f"the file cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise LexiconError("the file is not UTF-8") from error
    # Some editors write an umlaut as two characters, of which the second is no letter.
    for number, line in enumerate(unicodedata.normalize("NFC", text).split("\n"), start=1):
        if said := line.split("#", 1)[0].strip():
            yield number, said
