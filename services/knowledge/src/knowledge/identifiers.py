"""The identifier lane: which codes a text holds, and the tiers they form.

*Strong* identifiers name one thing: codes of letters and digits (`POL-55012`, `ZS-204`), grouped numbers (`7-3-6`, `2024/118`),
versions (`2.19.1`), numbers of four and more digits. Passages with more of the query's strong identifiers form a higher tier.
*Soft* ones carry meaning without naming: short terms (`pH`, `EC`, `N`), decimals (`6.2`), quantities (`500ml`). They are one more
fusion leg, never a tier. The same extractor runs at ingest and at query time, for every backend.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import regex

TOKEN = regex.compile(r"(?<![\p{L}\p{N}])[\p{L}\p{N}]+(?:[-/._,][\p{L}\p{N}]+)*")
QUANTITY = regex.compile(
    r"\d+(?:[.,]\d+)?(?:-\d+(?:[.,]\d+)?)?(?:ml|l|g|kg|mg|µg|mm|cm|m|km|h|min|s|ms|w|kw|kwh|v|a|hz|lux|ppm|x|c|f|k|d)",
    regex.IGNORECASE,
)
DECIMAL = regex.compile(r"\d+[.,]\d+")
SHORT_TERM = regex.compile(r"\p{Lu}|\p{L}{0,3}\p{Lu}\p{L}{0,3}")
MIN_STRONG_DIGITS = 4
MAX_SHORT_TERM = 4
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
    strong: dict[str, None] = {}
    soft: dict[str, None] = {}
    for match in TOKEN.finditer(text):
        token = match.group()
        if len(token) > MAX_IDENTIFIER:
            continue
        if _is_soft(token):
            soft[token.casefold().replace(",", ".")] = None
        elif _is_strong(token):
            strong[token.casefold()] = None
        else:
            # "EC-Wert", "N/P": the parts of a compound may be short terms even if the whole is a word.
            soft.update((part.casefold(), None) for part in regex.split(r"[-/._,]", token) if _is_short_term(part))
    return Identifiers(tuple(strong), tuple(soft))


def _is_soft(token: str) -> bool:
    return bool(QUANTITY.fullmatch(token) or DECIMAL.fullmatch(token)) or _is_short_term(token)


def _is_short_term(token: str) -> bool:
    if not token.isalpha() or len(token) > MAX_SHORT_TERM or not SHORT_TERM.fullmatch(token):
        return False
    # A capital beyond the first letter (pH, EC, NPK), or a single capital (N): not every word that begins a sentence.
    return len(token) == 1 or any(letter.isupper() for letter in token[1:])


def _is_strong(token: str) -> bool:
    digits = sum(character.isdecimal() for character in token)
    if digits == 0:
        return False
    groups = regex.split(r"[-/._,]", token)
    if any(character.isalpha() for character in token):
        # "3-fach" and "24-stündig" are words with a number in front; in a code the letters are capitals or stand with the digits.
        words = [group for group in groups if group.isalpha() and len(group) > 2 and not group.isupper()]
        return not words or digits >= MIN_STRONG_DIGITS or any(not group.isalpha() and not group.isdecimal() for group in groups)
    if len(groups) == 1:
        return digits >= MIN_STRONG_DIGITS
    # Two short numbers ("18-24", "2-3") are a range; three groups, a leading zero or many digits make a code.
    return len(groups) > 2 or digits > MIN_STRONG_DIGITS or any(len(group) > 1 and group.startswith("0") for group in groups)


def query_identifiers(texts: Sequence[str]) -> Identifiers:
    """The identifiers of a question and its sub-queries together, bounded."""
    found = [extract(text) for text in texts]
    strong = dict.fromkeys(name for one in found for name in one.strong)
    soft = dict.fromkeys(name for one in found for name in one.soft)
    return Identifiers(tuple(strong)[:MAX_PER_QUERY], tuple(soft)[:MAX_PER_QUERY])


def tiers(candidates: Sequence[T], strong_counts: Sequence[int]) -> list[T]:
    """A stable partition: more distinct strong identifiers first, the given order inside each tier."""
    order = sorted(range(len(candidates)), key=lambda index: -strong_counts[index])
    return [candidates[index] for index in order]
