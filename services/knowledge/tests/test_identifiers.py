"""The identifier lane: what is a strong identifier, what a soft one, and how tiers are made."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge.identifier_patterns import FORMULAS
from knowledge.identifiers import MAX_IDENTIFIER, MAX_PER_QUERY, Identifiers, extract, query_identifiers, tiers

STRONG = {
    # Letters and digits.
    "Police POL-55012 prüfen": ("pol-55012",),
    "POL 55012, pol_55012, POL55012": ("pol-55012",),
    "POL-55012 und POL-55021": ("pol-55012", "pol-55021"),
    "POL-550123": ("pol-550123",),
    "(X9)": ("x-9",),
    "Typ ZS-204.": ("zs-204",),
    "POL 55012A": ("pol-55012-a",),
    "im T12-Topf": ("t-12",),
    "der POL-55012-Schaden": ("pol-55012",),
    "Covid-19": ("covid-19",),
    "gateway-118": ("gateway-118",),
    "Rechnung-4711": ("rechnung-4711", "4711"),
    "H.264-Codec, X.25": ("h-264", "x-25"),
    "PM2.5": ("pm-2.5",),
    # Numbers and groups.
    "Artikel 00123": ("00123",),
    "Bestellnummer 4711": ("4711",),
    "55012,55021": ("55012", "55021"),
    "Vertrag 2024/118, 2024/17": ("2024-118", "2024-17"),
    "AZ 2024/118": ("az-2024-118", "2024-118"),
    "AZ-2024/118": ("az-2024-118", "2024-118"),
    "Dünger 7-3-6": ("7-3-6",),
    "NPK 7-3-6": ("npk-7-3-6", "7-3-6"),
    "55012-7": ("55012-7",),
    "4711-0815": ("4711-0815",),
    # Known forms.
    "Version 2.19.1": ("2.19.1",),
    "v2.19.1": ("2.19.1",),
    "Version 2.19": ("v2.19",),
    "2.19.1-rc.1": ("2.19.1-rc1",),
    "192.168.100.200": ("192.168.100.200",),
    "DIN EN 1717": ("din-en-1717", "en-1717"),
    "ISO/IEC 27001:2022": ("iso-iec-27001", "iec-27001", "iso-27001"),
    "IBAN DE89 3704 0044 0532 0130 00 angeben": ("de-89370400440532013000",),
    "FR14 2004 1010 0505 0001 3M02 606": ("fr-1420041010050500013-m-02606",),
    "ISBN 978-3-16-148410-0": ("9783161484100",),
    "+49 (0)171 234 56 78": ("01712345678",),
    "+43 1 234567 89": ("0043123456789",),
    "0171/2345678": ("01712345678",),
    # Spelling.
    "POL\u201355012": ("pol-55012",),
    "\uff30\uff2f\uff2c\uff0d\uff15\uff15\uff10\uff11\uff12": ("pol-55012",),
    "PO\u00adL-55\u200b012": ("pol-55012",),
    # Addresses.
    "https://firma.de/ticket/POL-55012?nr=4711": ("pol-55012",),
    "pol-55012@firma.de": ("pol-55012",),
    # Words in capitals.
    "DER POLICE POL 55012 FEHLT ALLES": ("pol-55012",),
    "DIE SUMME ETWA 55012": ("55012",),
    "DIE HERREN SUMME 55012": ("55012",),
}


@pytest.mark.parametrize("text", STRONG)
def test_codes_are_strong(text: str) -> None:
    """Letters with digits, hyphen or slash codes and numbers of four and more digits name one thing, and have one form."""
    assert extract(text).strong == STRONG[text]


SOFT = {
    "der pH des Bodens": ("ph",),
    "EC messen": ("ec",),
    "Mangel an N": ("n",),
    "Vitamin A": ("a",),
    "bei 6.2 liegt": ("6.2",),
    "bei 6,2 liegt": ("6.2",),
    "EC-Wert, N-Mangel": ("ec", "n"),
    "500ml geben": ("500ml",),
    "500 ml geben, 500ml-Flasche": ("500ml",),
    "2-Liter-Flasche": ("2l",),
    "NPK": ("npk",),
    "K+, Ca2+, Ca\u00b2\u207a": ("k", "ca"),
    "NO3-, NH\u2084\u207a und CO\u2082": ("no3", "nh4", "co2"),
    "CO2-arm": ("co2",),
    "LEDs": ("led",),
    "6,5 %": ("6.5%", "6.5"),
    "1.2 mS/cm": ("1.2ms/cm", "1.2"),
    "18\u201324 °C": ("18-24c",),
    "am 12345 Euro": ("12345€",),
    "EUR 500, $500": ("500€", "500$"),
    "1.234,56 und 1,234.56": ("1234.56",),
    "1.000.000 und 1,000,000": ("1000000",),
    "1000-1500 ppm": ("1000-1500ppm",),
    "3D, 400-700nm, 5-μm-Filter": ("3d", "400-700nm", "5μm"),
    "1,2-1,8": ("1.2", "1.8"),
}


@pytest.mark.parametrize("text", SOFT)
def test_short_terms_decimals_and_quantities_are_soft(text: str) -> None:
    """They carry meaning without naming one thing, so they never form a tier."""
    assert extract(text) == query_identifiers([text]) == Identifiers((), SOFT[text])


WEAK = {
    "am 12.03.2024": "2024-03-12",
    "am 12.3.2024": "2024-03-12",
    "am 12.03.24": "2024-03-12",
    "am 2024-03-12T10:00": "2024-03-12",
    "am 2024/03/12": "2024-03-12",
    "am 12/03/2024": "2024-03-12",
    "am 03/25/2024": "2024-03-25",
    "am 12-03-2024": "2024-03-12",
    "am 12. März 2024": "2024-03-12",
    "on March 12th, 2024": "2024-03-12",
    "im 03/2024": "2024-03",
    "im 2024-03": "2024-03",
    "1000-1500": "1000-1500",
    "1922-26": "1922-26",
    "08/15": "08-15",
    "POL 2024": "pol-2024",
}


@pytest.mark.parametrize("text", WEAK)
def test_weak_ones_form_tiers_only_where_nothing_stronger_is_asked_for(text: str) -> None:
    """A date must not lift the near miss of the same day to the code that was asked for."""
    assert extract(text) == Identifiers((), (WEAK[text],))
    assert query_identifiers([text]) == Identifiers((WEAK[text],), ())
    assert query_identifiers([text, "ZS-204"]) == Identifiers(("zs-204",), (WEAK[text],))


@pytest.mark.parametrize(
    "text",
    [
        *("", "Wasser", "Die unteren Blätter werden gelb", "3-fach", "18-24 Grad", "123", "24-stündig", "und/oder", "...", "m²", "2-3"),
        *("Seite 12", "Typ-2-Diabetes", "19th", "1st", "70ern", "24/7", "1,2,3", "14:30", "Europa¹", "50/50"),
        *("1989", "1980er", "1990s", "2023/24", "1990-1995", "pre-1900", "Mai-2024", "Ende.2024"),
        *("A dog", "Ist es so? A dog", "So do I", "info2@firma.de", "https://firma.de/2024/03/12/seite-1?x=55012", "www.firma.de/55012"),
        *("NICHT IN DIE SONNE STELLEN", "WIE HOCH IST DER PH WERT"),
    ],
)
def test_words_short_numbers_and_years_are_no_identifiers(text: str) -> None:
    """Words, ranges, short numbers and years stand for nothing by themselves; nor does an address, unless it holds a code."""
    assert extract(text).all == ()
    assert query_identifiers([text]).all == ()


def test_leading_zeros_count() -> None:
    """`00123` is not `123`, nor `123` in any other spelling."""
    assert "123" not in extract("00123").all
    assert extract("00123").strong != extract("000123").strong


@given(st.from_regex(r"[A-Z]{2,5}", fullmatch=True), st.integers(3, 8), st.data())
def test_a_prefixed_number_is_the_same_in_every_spelling(prefix: str, length: int, data: st.DataObject) -> None:
    """Hyphen, underscore, slash, nothing, small letters; and no other number is it."""
    number, other = (data.draw(st.from_regex(rf"[3-9][0-9]{{{length - 1}}}", fullmatch=True)) for _ in range(2))
    written = [f"{prefix}{sign}{number}" for sign in ("-", "_", "/", "")]
    if f"{prefix}{number}".casefold() not in FORMULAS:
        assert {extract(f"Zu {code} hier").strong[0] for one in written for code in (one, one.casefold())} == {
            extract(written[0]).strong[0]
        }
        assert (number == other) == (extract(written[0]).strong == extract(f"{prefix}-{other}").strong)


@pytest.mark.parametrize(
    "part", ["1", "1.", "1-", "1 2 ", "POL ", "POL 123-", "a@", "a.", "0123 4567 ", "DIN EN ", "DE89 3704 ", "1 - 2 ", "+1 "]
)
def test_no_text_takes_long(part: str) -> None:
    """Reading is linear in the length of the text, whatever repeats in it; the limit is a hundred times what it takes."""
    text = part * (40_000 // len(part))
    started = time.perf_counter()
    extract(text)
    assert time.perf_counter() - started < 30


def test_case_does_not_count() -> None:
    """An identifier is the same in capitals and in small letters."""
    assert extract("pol-55012").strong == extract("POL-55012").strong


def test_each_is_found_once_in_order() -> None:
    """Repetition does not count, appearance decides the order, strong ones come first in `all`."""
    found = extract("EC bei B2-99, A1-77, B2-99 und EC")
    assert found.strong == ("b-2-99", "a-1-77")
    assert found.all == ("b-2-99", "a-1-77", "ec")


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_error(text: str) -> None:
    """No text breaks the extractor, and nothing that it finds is longer than the limit or blank."""
    found = extract(text)
    assert all(len(name) > 0 for name in found.all)
    assert set(found.strong).isdisjoint(found.soft)


PIECES = [
    "Terminal",
    "POL",
    "pol",
    "Ca",
    "pH",
    "style",
    "256",
    "55012",
    "00",
    "1999",
    "9",
    "²",
    "ü",
    "ﬁ",
    "٣",
    " ",
    "-",
    "/",
    ".",
    ",",
    "_",
    "@",
    "%",
]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_anything_that_looks_like_a_code_is_read_without_an_error(text: str) -> None:
    """Letters, digits of all kinds and separators in any order: `Terminal256Formatter` once broke it."""
    found = extract(text)
    assert all(found.all)
    assert set(found.strong).isdisjoint(found.soft)


@given(st.sampled_from(["POL-55012", "00123", "2024/118", "7-3-6"]), st.sampled_from(["", "(", '"', "¿", "\u200f", "· "]))
def test_the_same_code_is_found_whatever_surrounds_it(code: str, before: str) -> None:
    """Punctuation next to a code does not change it: query and passage are read alike."""
    assert extract(f"Wo {before}{code}? Dort.").strong == (code.casefold().replace("/", "-"),)


def test_very_long_tokens_are_left_out() -> None:
    """A token over the limit is noise, not a code."""
    assert extract("A1" * MAX_IDENTIFIER).all == ()


def test_a_query_and_its_sub_queries_are_read_together_and_bounded() -> None:
    """Identifiers of the question and of sub-queries count alike; their number is bounded."""
    assert query_identifiers(["A1-10 pH", "B2-20", "A1-10"]).all == ("a-1-10", "b-2-20", "ph")
    many = query_identifiers([" ".join(f"X{number}-1" for number in range(100))])
    assert len(many.strong) == MAX_PER_QUERY


@given(st.lists(st.integers(0, 3), max_size=30))
def test_tiers_are_a_stable_partition(counts: list[int]) -> None:
    """More identifiers first; within a tier the given order stays; nothing is lost."""
    order = tiers(range(len(counts)), counts)
    assert sorted(order) == list(range(len(counts)))
    for before, after in pairwise(order):
        assert (counts[before], -before) > (counts[after], -after)
