"""Identifiers of well-known forms: each has one spelling in the index, however a text writes it."""

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum

import regex

from knowledge.identifier_patterns import FORM, IONS, MONTHS, STAGED, UNIT_NAMES, number


class Kind(IntEnum):
    """What an identifier is good for; the higher one counts where a text holds both."""

    SOFT = 0
    WEAK = 1
    STRONG = 2


Found = Iterator[tuple[str, Kind]]


def _digits(written: str) -> str:
    return "".join(character for character in written if character.isdecimal())


def _numbers(written: str) -> list[str]:
    return regex.findall(r"\d+", written)


def _isbn(written: str) -> Found:
    yield _digits(written), Kind.STRONG


def _date(written: str) -> Found:
    """`12.03.2024` is `2024-03-12`; with a slash the day comes first, unless only the second number can be one."""
    first, month, last = (f"{int(part):02}" for part in _numbers(written))
    year, day = (first, last) if len(first) == 4 else (last, first)
    if int(month) > 12:
        month, day = day, month
    yield f"{year if len(year) == 4 else '20' + year}-{month}-{day}", Kind.WEAK


def _month(written: str) -> Found:
    first, second = _numbers(written)
    yield f"{first}-{second}" if len(first) == 4 else f"{second}-{int(first):02}", Kind.WEAK


def _worded(written: str) -> Found:
    """`12. März 2024`, `March 12, 2024`."""
    month = MONTHS[regex.findall(r"\p{L}{3}", written)[0].casefold()]
    day, year = _numbers(written)
    yield f"{year}-{month}-{int(day):02}", Kind.WEAK


def _phone(written: str) -> Found:
    """`+49 171 2345678` is `0171 2345678`; other countries keep their code."""
    digits = _digits(written.replace("(0)", ""))
    if written.startswith(("+49", "0049")):
        digits = "0" + digits.removeprefix("00").removeprefix("49")
    elif written.startswith("+"):
        digits = "00" + digits
    yield digits, Kind.STRONG


def _version(written: str) -> Found:
    """`v2.19.1` is `2.19.1`; `v2.19` is not the number 2.19, so it keeps its letter."""
    numbers, stage = STAGED.findall(written)[0]
    name = numbers if numbers.count(".") > 1 else f"v{numbers}"
    yield f"{name}-{regex.sub('[-.]', '', stage.casefold())}" if stage else name, Kind.STRONG


def _quantity(written: str) -> Found:
    """`500 ml` is `500ml`, `6,5 %` is `6.5%` and also the decimal alone."""
    first, last, unit, sign, amount = FORM.findall(written)[0]
    numbers = [number(one) for one in (first, last, amount) if one]
    unit = (unit or sign).casefold()
    yield "-".join(numbers) + UNIT_NAMES.get(unit, unit), Kind.SOFT
    yield from ((one, Kind.SOFT) for one in numbers if "." in one)


def _decimal(written: str) -> Found:
    yield number(written), Kind.SOFT


def _standard(written: str) -> Found:
    """`DIN EN 1717` is also asked for as `EN 1717`, but `DIN 1717` is another one."""
    bodies, numbers = regex.findall(r"\p{L}+", written.casefold()), _numbers(written)
    for names in dict.fromkeys([tuple(bodies), (bodies[-1],), *([("iso",)] if "iso" in bodies else [])]):
        yield "-".join((*names, *numbers)), Kind.STRONG


def _ion(written: str) -> Found:
    """`K+` is potassium like `K`, `Ca2+` is `Ca`."""
    yield regex.findall(IONS, written)[0].casefold(), Kind.SOFT


READERS: Mapping[str, Callable[[str], Found]] = {
    "isbn": _isbn,
    "date": _date,
    "month": _month,
    "worded": _worded,
    "phone": _phone,
    "version": _version,
    "quantity": _quantity,
    "decimal": _decimal,
    "standard": _standard,
    "ion": _ion,
}
"""By the name of the alternative in `identifier_patterns.ANY`."""
