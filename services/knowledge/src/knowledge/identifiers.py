"""The identifier lane: which codes a text holds, and the tiers they form.

*Strong* identifiers name one thing: codes of letters and digits (`POL-55012`, `ZS-204`), grouped numbers (`7-3-6`, `2024/118`),
versions (`2.19.1`), numbers of four and more digits. Passages with more of the query's strong identifiers form a higher tier.
*Soft* ones carry meaning without naming: short terms (`pH`, `EC`, `N`), decimals (`6.2`), quantities (`500ml`). They are one more fusion
leg, never a tier. *Weak* ones are soft beside a strong one and strong alone in a query: dates and what may be a range. Years are none.
The same extractor runs at ingest and at query time, for every backend. However it is written, an identifier has one form.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from knowledge.identifier_forms import READERS, Found, Kind
from knowledge.identifier_patterns import (
    ANY,
    CODE_IN_ADDRESS,
    ELEMENTS,
    FORMULAS,
    LETTERS,
    LONG_WORD,
    MAX_SHORT_TERM,
    ORDINAL,
    SEAMS,
    SEPARATORS,
    YEAR,
    plain,
    shouted,
)

MIN_STRONG_DIGITS = 4
MAX_PREFIX = 12
MAX_IDENTIFIER = 64
MAX_PER_QUERY = 32

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Identifiers:
    """Normalised identifiers of a text, each once, in order of appearance."""

    strong: tuple[str, ...]
    soft: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """Both kinds, strong ones first."""
        return self.strong + self.soft


def extract(text: str) -> Identifiers:
    """The identifiers of a text. Leading zeros count: `00123` is not `123`."""
    found = _found([text])
    strong = tuple(name for name, kind in found.items() if kind is Kind.STRONG)
    return Identifiers(strong, tuple(name for name, kind in found.items() if kind is not Kind.STRONG))


def query_identifiers(texts: Sequence[str]) -> Identifiers:
    """The identifiers of a question and its sub-queries together, bounded. Without a strong one the weak ones form the tiers."""
    found = _found(texts)
    least = max((kind for kind in found.values() if kind is not Kind.SOFT), default=Kind.STRONG)
    strong = tuple(name for name, kind in found.items() if kind >= least)
    soft = tuple(name for name, kind in found.items() if kind < least)
    return Identifiers(strong[:MAX_PER_QUERY], soft[:MAX_PER_QUERY])


def tiers(candidates: Sequence[T], strong_counts: Sequence[int]) -> list[T]:
    """A stable partition: more distinct strong identifiers first, the given order inside each tier."""
    order = sorted(range(len(candidates)), key=lambda index: -strong_counts[index])
    return [candidates[index] for index in order]


def _found(texts: Sequence[str]) -> dict[str, Kind]:
    found: dict[str, Kind] = {}
    for text in texts:
        for name, kind in _read(plain(text)):
            found[name] = max(kind, found.get(name, kind))
    return found


def _read(text: str) -> Found:
    loud = deque(shouted(text))
    for match in ANY.finditer(text):
        what, written = match.lastgroup, match.group()
        if what == "prose" or _is_plain(written) or (len(written) > MAX_IDENTIFIER and what != "address"):
            continue
        while loud and loud[0][1] <= match.start():
            loud.popleft()
        is_loud = bool(loud) and loud[0][0] <= match.start()
        if what == "token":
            yield from _token(written, is_loud=is_loud, opens=_opens(text, match.start()))
        elif what == "spaced":
            yield from _spaced(*written.split(" "), is_loud=is_loud)
        elif what == "address":
            for code in CODE_IN_ADDRESS.findall(written):
                yield from _token(code)
        elif what == "iban":
            yield from _mixed([written.replace(" ", "")])
        elif what is not None:
            yield from READERS[what](written)


def _spaced(prefix: str, rest: str, *, is_loud: bool) -> Found:
    """`POL 55012`; among words that all stand in capitals only the shortest ones are taken for prefixes."""
    if is_loud and len(prefix) > 3:
        yield from _token(rest)
    else:
        yield from _code(prefix, [prefix, *SEPARATORS.split(rest)], spaced=True)


def _opens(text: str, start: int) -> bool:
    """Whether a sentence begins here: an "A" is an article then."""
    before = text[max(0, start - 3) : start].rstrip(" \"'(")
    return not before or before[-1] in ".!?:\n"


def _token(token: str, *, is_loud: bool = False, opens: bool = False) -> Found:
    """A run of letters, digits and separators. The words around a code are no part of it: `T12-Topf`, `POL-55012-Schaden`."""
    groups = SEPARATORS.split(token)
    if not any(character.isdecimal() for character in token):
        if not is_loud:
            alone = len(groups) == 1
            yield from (
                (_singular(part).casefold(), Kind.SOFT)
                for part in groups
                if _is_short_term(_singular(part)) and not (alone and (part == "I" or (part == "A" and opens)))
            )
        return
    while len(groups) > 1 and _is_word(groups[-1]):
        groups.pop()
    while len(groups) > 1 and _is_word(groups[0]) and groups[1].isalpha():
        groups.pop(0)
    first = groups[0]
    if first.isalpha() and len(groups) > 1:
        rest = "-".join(groups[1:])
        if _is_prefix(first, sum(character.isdecimal() for character in rest)) and (first.isupper() or not YEAR.fullmatch(rest)):
            yield from _code(first, groups)
        else:
            yield from _token(rest)
    elif all(character.isdecimal() or character == "." for group in groups for character in group):
        yield from _numbers(groups)
    else:
        yield from _mixed(groups)


def _mixed(groups: Sequence[str]) -> Found:
    """Letters and digits that touch: a code (`X9`), a formula (`CO2`), or a word about a number (`3fach`, `19th`, `24h`)."""
    first = groups[0]
    if len(groups) == 1:
        if first.casefold() in FORMULAS:
            yield first.casefold(), Kind.SOFT
            return
        if ORDINAL.fullmatch(first):
            return
        if len(first) == 2 and first[0].isdecimal():
            yield first.casefold(), Kind.SOFT
            return
    yield from _code(LETTERS.findall(first)[0], groups)


def _code(prefix: str, groups: Sequence[str], *, spaced: bool = False) -> Found:
    """A code in its one form, and what of it names something by itself: `2024/118` in `AZ-2024/118`, `4711` in `Rechnung-4711`."""
    whole = SEAMS.sub("-", "-".join(groups).casefold())
    runs = whole.split("-")
    numbers = runs[1:] if prefix and all(run.isdecimal() for run in runs[1:]) else []
    is_year = len(numbers) == 1 and YEAR.fullmatch(numbers[0]) is not None
    yield whole, Kind.WEAK if spaced and is_year else Kind.STRONG
    if numbers and (len(numbers) > 1 or len(prefix) > LONG_WORD):
        alone = list(_numbers(numbers))
        yield from alone
        if alone and len(prefix) <= MAX_SHORT_TERM:
            yield prefix.casefold(), Kind.SOFT


def _numbers(groups: Sequence[str]) -> Found:
    """Numbers alone. Two short ones are a range; three, a leading zero or many digits make a code."""
    whole, digits = "-".join(groups), sum(character.isdecimal() for group in groups for character in group)
    if len(groups) == 1:
        if digits >= MIN_STRONG_DIGITS and not YEAR.fullmatch(whole):
            yield whole, Kind.STRONG
    elif len(groups) > 2 or "." in whole:
        if len(groups) > 2 or digits > MIN_STRONG_DIGITS:
            yield whole, Kind.STRONG
    else:
        yield from _pair(groups[0], groups[1], digits)


def _pair(first: str, second: str, digits: int) -> Found:
    """`2024/118` and `55021-7` are codes, `2023/24` and `18-24` are not, `1000-1500`, `1922-26` and `08/15` may be."""
    whole, is_year = f"{first}-{second}", YEAR.fullmatch(first) is not None
    if is_year and (YEAR.fullmatch(second) or (len(second) == 2 and int(second) == (int(first) + 1) % 100)):
        return
    if len(first) == 4 and len(second) == 2 and int(second) > int(first[2:]):
        yield whole, Kind.WEAK
    elif is_year:
        yield whole, Kind.STRONG
    elif first.startswith("0") or (second.startswith("0") and len(second) > 1):
        yield whole, Kind.WEAK if digits <= MIN_STRONG_DIGITS else Kind.STRONG
    elif digits > MIN_STRONG_DIGITS:
        yield whole, Kind.WEAK if int(first) < int(second) and len(second) <= len(first) + 1 else Kind.STRONG


def _is_plain(word: str) -> bool:
    """A word without digits or capitals beyond its first letter, as nearly all are: no identifier, unless it is a symbol."""
    return word[1:].islower() and word.isalpha() and word not in ELEMENTS


def _is_word(group: str) -> bool:
    return group.isalpha() and (len(group) > LONG_WORD or (len(group) > 2 and not group.isupper()))


def _is_prefix(letters: str, digits: int) -> bool:
    """Whether letters before a separator belong to the digits after it, in any case: `Typ-2`, `3-fach` are words, `pol-55012` is a code."""
    if len(letters) <= 2 or (letters.isupper() and len(letters) <= LONG_WORD):
        return True
    return digits >= 2 + (len(letters) > LONG_WORD and not letters.isupper()) and len(letters) <= MAX_PREFIX


def _singular(part: str) -> str:
    return part[:-1] if len(part) > 2 and part[-1] == "s" and part[:-1].isupper() else part


def _is_short_term(part: str) -> bool:
    if not part.isalpha() or len(part) > MAX_SHORT_TERM:
        return False
    # A capital beyond the first letter (pH, EC, NPK), a single capital (N), a symbol (Ca): not every word that begins a sentence.
    return part in ELEMENTS or (part.isupper() if len(part) == 1 else any(letter.isupper() for letter in part[1:]))
