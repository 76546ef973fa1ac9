"""What the identifier lane looks for in a text: one pattern of alternatives, tried from the left, and the words that they need.

The reasons stand in docs/decisions/0002-identifier-lane.md.
"""

import unicodedata

import regex

_ODD_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
_INVISIBLE = "\u00ad\u200b\u200c\u200d\u2060\ufeff"
_SPELLINGS = (
    {ord(dash): "-" for dash in _ODD_DASHES} | {ord(sign): None for sign in _INVISIBLE} | {ord(sign): "/" for sign in "\u2044\u2215"}
)
# A raised number is a footnote or a power ("m²"), never part of a code. A lowered one is: "CO₂".
_RAISED = regex.compile(r"[\p{No}--[₀-₉]]", regex.VERSION1)

_SIGNS = regex.compile(rf"[{''.join(map(chr, _SPELLINGS))}]|{_RAISED.pattern}", regex.VERSION1)

# German and English words that stand before a number in capitals without being its prefix: "AM 12345 EURO", "NR 4711", "EC 1200".
_NO_PREFIXES = (
    "AB|ABB|AM|AN|ART|AUF|AUS|BEI|BIS|DAS|DEM|DEN|DER|DES|DIE|EIN|EINE|ES|ETWA|FAST|FAX|IM|IN|IST|JAHR|JE|KAP|KW|MAX|MIN|MIT|NACH|NR|NUR|"
    "PLZ|RUND|SEIT|SIND|TEIL|TEL|UM|UND|UHR|VON|VOR|VOM|WAR|ZU|ZUM|ZUR|ABOUT|AND|ARE|AT|BY|CA|FIG|FOR|FROM|IS|NO|OF|ON|ONLY|OR|OVER|PAGE|SINCE|"
    "THE|TO|TOP|UNTIL|WAS|WITH|YEAR|ZIP|EUR|EURO|USD|CHF|GBP|EC|ISBN|LED|PAR|PH|PPFD|PPM|RH|TDS|UV"
)
NO_PREFIXES = frozenset(_NO_PREFIXES.split("|"))

_MONTHS = ("jan", "feb", "mär|mar|mrz", "apr", "mai|may", "jun", "jul", "aug", "sep", "okt|oct", "nov", "dez|dec")
MONTHS = {name: f"{number:02}" for number, names in enumerate(_MONTHS, start=1) for name in names.split("|")}
_MONTH = (
    r"(?:(?i:januar|january|jan|februar|february|feb|märz|mrz|march|mar|april|apr|mai|may|juni|june|jun|juli|july|jul|"
    r"august|aug|september|sept|sep|oktober|october|okt|oct|november|nov|dezember|december|dez|dec))"
)

_ELEMENTS = "Ag|Al|Au|Ba|Br|Ca|Cd|Cl|Cr|Cu|Fe|Hg|Li|Mg|Mn|Mo|Na|Ni|Pb|Si|Sr|Ti|Zn"
_FORMULAS = "CH4|CACO3|CO|CO2|CO3|H2|H2O|H2O2|H2SO4|HCO3|HNO3|K2O|K2SO4|KNO3|MGSO4|N2|N2O|NH3|NH4|NO2|NO3|O2|O3|P2O5|PO4|SIO2|SO2|SO3|SO4"
ELEMENTS = frozenset(_ELEMENTS.split("|"))
"""Symbols of two letters that are no German or English word."""
FORMULAS = frozenset(_FORMULAS.casefold().split("|"))
IONS = r"(?:HCO3|H|Na|K|Ca|Mg|Fe|Cu|Zn|Mn|Al|Cl|NH4|NO3|NO2|PO4|SO4|CO3)"

UNIT_NAMES = {"liter": "l", "litern": "l", "gramm": "g", "prozent": "%", "percent": "%", "euro": "€", "eur": "€", "°c": "c", "°f": "f"}
_UNITS = (
    r"ml|cl|dl|l|litern|liter|gramm|g|kg|mg|μg|nm|μm|mm|cm|m|km|ha|h|min|ms/cm|μs/cm|ms|μs|w|kw|kwh|v|ma|mah|hz|khz|mhz|ghz|lux|lx|lm|ppm|ppb|"
    r"mmol|μmol|mol|°c|°f|°|kcal|kj|bar|pa|hpa|kpa|db|kb|mb|gb|tb|%|‰|prozent|percent|euro|eur|€|usd|dollar|\$|chf|gbp|£"
)
# One letter more often ends a code than it measures something, so it must follow at most three digits, without a blank.
_UNIT = rf"(?i:[ -]?(?:{_UNITS})|(?<!\d{{4}})[acdfkstx])(?![\p{{L}}\p{{N}}])"
_NUMBER = (
    r"(?:\d{1,3}(?:\.\d{3})+,\d{1,2}|\d{1,3}(?:,\d{3})+\.\d{1,2}|"
    r"\d{1,3}(?:\.\d{3}){2,}|\d{1,3}(?:,\d{3}){2,}|\d{1,3}[.,]\d{1,6}|\d+[.,]\d{1,3})"
)
_AMOUNT = rf"(?:{_NUMBER}|\d+)"
_STRICT_BODY = r"(?i:DIN|ISO|IEC|VDE|VDI|ANSI|ASTM|IEEE|ÖNORM)"
_BODY = r"(?i:DIN|EN|ISO|IEC|VDE|VDI|ANSI|ASTM|IEEE|ÖNORM)"
_YEAR = r"(?:1[5-9]|20)\d\d"
_DAY_MONTH = r"(?:(?:0?[1-9]|[12]\d|3[01])\.(?:0?[1-9]|1[0-2])\.|(?:0?[1-9]|[12]\d|3[01])/(?:0?[1-9]|1[0-2])/"
_END = r"(?![\p{L}\p{N}])"
_WHOLE = r"(?![\p{L}\p{N}]|[-/_][\p{L}\p{N}]|[.,]\d)"
_DATE = (
    rf"{_YEAR}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])(?=T\d|{_WHOLE})"
    rf"|{_YEAR}[/.](?:0[1-9]|1[0-2])[/.](?:0[1-9]|[12]\d|3[01]){_WHOLE}"
    rf"|(?:{_DAY_MONTH}|(?:0?[1-9]|[12]\d|3[01])-(?:0[1-9]|1[0-2])-)){_YEAR}{_WHOLE}"
    rf"|(?:0[1-9]|1[0-2])/(?:1[3-9]|2\d|3[01])/{_YEAR}{_WHOLE}"
    rf"|(?:0[1-9]|[12]\d|3[01])\.(?:0[1-9]|1[0-2])\.\d\d{_WHOLE}"
)

_ALTERNATIVES = {
    # Words that can be no part of anything below, several in one go: nearly all of a text, and the rest of the pattern is slow.
    # Not before a number ("März 3", "version 2.1"), a sign that joins, or the other words of a standard; no symbol ("Fe").
    "prose": (
        rf"(?:(?!(?i:{_BODY})[ /-])(?:\p{{Ll}}{{2,}}+|\p{{Lu}}\p{{Ll}}{{2,}}+)"
        r"(?![\p{L}\p{N}@/_%+-]|\.?[\p{L}\p{N}]|\.? ?\d|://)[ ,;\n]*+)+"
    ),
    "address": r"""(?:https?|ftp)://[^\s<>"]+|www\.[^\s<>"]+|[\p{L}\p{N}._%+-]{1,64}@[\p{L}\p{N}-]+(?:\.[\p{L}\p{N}-]+)+""",
    # Country, check digits, groups of four, the bank's letters first where there are any: "DE89 3704 0044 0532 0130 00".
    "iban": rf"(?i:[a-z]{{2}}\d\d (?:[a-z]{{4}} )?(?:(?=[a-z]*\d)[a-z\d]{{4}} ){{2,6}}[a-z]?\d{{1,4}}){_END}",
    "isbn": rf"97[89](?:[- ]?\d){{10}}{_WHOLE}",
    "date": _DATE,
    "month": rf"{_YEAR}-(?:0[1-9]|1[0-2]){_WHOLE}|(?:0?[1-9]|1[0-2])[/.]{_YEAR}{_WHOLE}",
    "worded": rf"\d{{1,2}}\.? ?{_MONTH}\.? {_YEAR}{_END}|{_MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?,? {_YEAR}{_END}",
    "phone": (
        r"(?:\+[1-9]\d{0,2}|00(?:49|43|41))(?:[ ()/-]{0,3}\d){7,12}(?!\d)"
        r"|\(?0[1-9]\d{1,4}\)?[ /-]{1,3}(?<=\d[ )/-]{1,4})(?=(?:[ /-]?\d){5,11}(?!\d))\d{2,}(?:[ /-]\d{2,})*" + _WHOLE
    ),
    "version": (
        rf"(?i:v\.? ?|version |release )\d+(?:\.\d+)+(?i:-?(?:alpha|beta|rc|pre|dev)\.?\d*)?{_WHOLE}"
        rf"|(?!\d{{1,3}}(?:\.\d{{3}}){{2}}(?!\.?\d))\d+(?:\.\d+){{2,}}(?i:-?(?:alpha|beta|rc|pre|dev)\.?\d*)?{_WHOLE}"
    ),
    "quantity": rf"{_AMOUNT}(?: ?- ?{_AMOUNT})?{_UNIT}|(?:[€$£] ?|(?:EUR|USD|CHF|GBP) ){_AMOUNT}{_END}",
    "decimal": rf"(?<!\d[.,]){_NUMBER}(?![\p{{L}}\p{{N}}]|[.,]\d|/[\p{{L}}\p{{N}}]|[-_]\p{{L}}|-\d+(?![.,\d]))",
    "standard": rf"(?:{_STRICT_BODY}|EN)(?:[ /-]{{1,2}}{_BODY}){{0,2}}[ -]\d{{1,6}}(?:[-/]\d+)*{_END}",
    "ion": rf"{IONS}\d?[+-]{{1,2}}{_END}",
    # A short prefix in capitals and a number, one blank between them. The number must be whole and measure nothing.
    "spaced": rf"(?!(?:{_NO_PREFIXES})\b)\p{{Lu}}{{2,5}} (?!{_DATE})"
    rf"(?:\d{{3,}}\p{{Lu}}?(?:[-/_]\d+)*|\d+(?:[-/]\d+){{2,}}){_WHOLE}(?!{_UNIT})",
    "token": r"[\p{L}\p{N}]+(?:(?:[-/_]|(?<=\p{N})\.(?=\p{N})|(?<=(?<!\p{L})(?:[A-OQRT-Z]|\p{Lu}{2,5}))\.(?=\d\d))[\p{L}\p{N}]+)*",
}
ANY = regex.compile(r"(?<![\p{L}\p{N}])(?:" + "|".join(f"(?P<{name}>{one})" for name, one in _ALTERNATIVES.items()) + ")")

CODE_IN_ADDRESS = regex.compile(r"(?<![\p{L}\p{N}_-])(?:\p{L}{1,5}[-_]\d{3,}|\p{Lu}{1,5}\d{3,})(?![\p{L}\p{N}_-])")
SEPARATORS = regex.compile(r"[-/_]")
SEAMS = regex.compile(r"(?<=\p{L})(?=\p{N})|(?<=\p{N})(?=\p{L})|[/_]|(?<=\p{L})\.")
"""Where two runs of a code meet: letters and digits, or a separator. All of them are written `-`."""
YEAR = regex.compile(r"(?:19|20)\d\d")
"""A year names no one thing and is a word to the lexical leg: by itself it is no identifier."""
ORDINAL = regex.compile(r"\d+(?:s|st|nd|rd|th|er|ern|ers|te|ten|ter|tes|\p{Ll}{4,})")
SHOUTED = regex.compile(r"(?<!\p{L})\p{Lu}++(?:[^\p{L}\n]{1,3}\p{Lu}++){2,}(?!\p{L})")
CAPITALS = regex.compile(r"\p{Lu}+")
FORM = regex.compile(r"([\d.,]*\d)(?: ?- ?([\d.,]*\d))?[ -]?([^\d\s]+)|([€$£]|EUR|USD|CHF|GBP) ?([\d.,]*\d)")
"""A quantity: number, second number of a range, unit; or currency and amount."""
STAGED = regex.compile(r"(\d+(?:\.\d+)+)(?:-?(\p{L}.*))?")
LETTERS = regex.compile(r"^\p{L}*")
LONG_WORD, MAX_SHORT_TERM = 5, 4


def plain(text: str) -> str:
    """The text with one spelling for each sign: NFKC, ASCII dashes, no invisible signs, no raised numbers."""
    if text.isascii() or (unicodedata.is_normalized("NFKC", text) and not _SIGNS.search(text)):
        return text
    return unicodedata.normalize("NFKC", _RAISED.sub(" ", text).translate(_SPELLINGS)).translate(_SPELLINGS)


def number(text: str) -> str:
    """A number with a decimal point, if any, and without thousands separators: `6,2`, `1.234,56`, `1,000,000`."""
    last = max(text.rfind("."), text.rfind(","))
    if last < 0:
        return text
    whole, fraction = text[:last].replace(".", "").replace(",", ""), text[last + 1 :]
    if text.count(text[last]) > 1:
        return whole + fraction
    return f"{whole}.{fraction}"


def shouted(text: str) -> list[tuple[int, int]]:
    """Where whole runs of words stand in capitals: no word there is a short term for being in capitals."""
    found = []
    for match in SHOUTED.finditer(text):
        words = CAPITALS.findall(match.group())
        if 3 * sum(len(word) > LONG_WORD - 1 for word in words) >= len(words) or not NO_PREFIXES.isdisjoint(words):
            found.append(match.span())
    return found
