"""Two complete catalogues, and the choice between them."""

import json
import re
from pathlib import Path

import pytest

import frontend
from frontend.language import LANGUAGES, catalogue, negotiate
from services.frontend.tests.serving import browsing

PACKAGE = Path(str(frontend.__file__)).parent
FAMILIES = (
    *("reason.", "problem.", "degraded.", "badge.", "move.", "persona.", "theme.", "nav."),
    *("console.range.", "console.prometheus.", "console.trace_store.", "stage.", "leg.", "score_kind."),
    *("chat.title.", "chat.welcome.", "chat.placeholder."),
)
"""Keys that are put together where they are used."""


def sources() -> str:
    """All templates and scripts, and the modules that name keys."""
    files = [path for pattern in ("templates/*.html", "static/js/*.js", "*.py") for path in sorted(PACKAGE.glob(pattern))]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def test_the_catalogues_say_the_same_things() -> None:
    """The same keys with the same values in them, none of them blank."""
    english, german = catalogue("en"), catalogue("de")
    assert list(english) == list(german)
    for key, message in english.items():
        assert message.strip(), key
        assert german[key].strip(), key
        assert set(re.findall(r"{\w+}", message)) == set(re.findall(r"{\w+}", german[key])), key


def test_no_key_stands_twice() -> None:
    """The later one would win silently."""
    for language in LANGUAGES:
        pairs = json.loads((PACKAGE / "locales" / f"{language}.json").read_text(encoding="utf-8"), object_pairs_hook=list)
        assert len(pairs) == len(dict(pairs))


def test_every_key_that_is_used_is_there() -> None:
    """In templates and scripts."""
    used = set(re.findall(r"""\bt\(\s*["']([a-z_0-9.]+)["']""", sources()))
    plurals = set(re.findall(r"""\bplural\(\s*["']([a-z_0-9.]+)["']""", sources()))
    assert len(used) > 80
    assert {key for key in used if not key.endswith(".") and key not in catalogue("en")} == set()
    assert {key for key in plurals for form in ("one", "other") if f"{key}.{form}" not in catalogue("en")} == set()


def test_no_key_is_left_over() -> None:
    """Besides those of the families that are put together."""
    text = sources()
    stems = {key: key.removesuffix(".one").removesuffix(".other") for key in catalogue("en")}
    left = {key for key, stem in stems.items() if f'"{stem}"' not in text and f"'{stem}'" not in text and not key.startswith(FAMILIES)}
    assert left == set()


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", "en"),
        ("de", "de"),
        ("de-CH,de;q=0.9,en;q=0.8", "de"),
        ("en-GB,en;q=0.9,de;q=0.8", "en"),
        ("fr,de;q=0.5,en;q=0.4", "de"),
        ("en;q=0.2,de;q=0.9", "de"),
        ("de;q=0", "en"),
        ("fr;q=x,de", "de"),
        ("*", "en"),
    ],
)
def test_the_browsers_languages(header: str, language: str) -> None:
    """The best liked of those at hand."""
    assert negotiate(header) == language


async def test_a_choice_is_kept_and_wins_over_the_browser() -> None:
    """Language and theme, in cookies."""
    async with browsing() as browser:
        assert 'lang="en"' in (await browser.open("/login")).text
        response = await browser.submit("/preferences", language="de", theme="dark", next="/login")
        assert (response.status_code, response.headers["location"]) == (303, "/login")
        page = (await browser.open("/login")).text
        assert '<html lang="de" data-theme="dark">' in page
        assert "Anmelden" in page
        await browser.submit("/preferences", language="fr", theme="pink", next="/login")
        assert '<html lang="de" data-theme="dark">' in (await browser.open("/login")).text
