"""German and English: two complete catalogues, chosen by a cookie, else by the browser's languages."""

import json
from functools import cache
from importlib.resources import files
from typing import Literal, cast

from starlette.requests import Request

LANGUAGES = ("en", "de")
Language = Literal["en", "de"]
THEMES = ("auto", "light", "dark")
LANGUAGE_COOKIE, THEME_COOKIE = "knowledge-language", "knowledge-theme"
COOKIE_DAYS = 365


@cache
def catalogue(language: str) -> dict[str, str]:
    """The messages of a language by key."""
    text = files("frontend").joinpath("locales", f"{language}.json").read_text(encoding="utf-8")
    messages: dict[str, str] = json.loads(text)
    return messages


def language_of(request: Request) -> Language:
    """The person's own choice, else the best of the browser's languages, else English."""
    chosen = request.cookies.get(LANGUAGE_COOKIE)
    if chosen in LANGUAGES:
        return cast("Language", chosen)
    return negotiate(request.headers.get("Accept-Language", ""))


def negotiate(header: str) -> Language:
    """The language that an `Accept-Language` header likes best of those at hand."""
    liked: list[tuple[float, str]] = []
    for part in header.split(",")[:20]:
        name, _, quality = part.strip().partition(";q=")
        try:
            liked.append((-float(quality or 1), name.lower().split("-")[0]))
        except ValueError:
            continue
    for weight, name in sorted(liked, key=lambda one: one[0]):
        if weight < 0 and name in LANGUAGES:
            return cast("Language", name)
    return "en"


def theme_of(request: Request) -> str:
    """`light` or `dark` where the person chose one, else `auto`."""
    chosen = request.cookies.get(THEME_COOKIE, "auto")
    return chosen if chosen in THEMES else "auto"


def translate(language: str, key: str) -> str:
    """One message; a missing one is a bug that a test finds."""
    return catalogue(language)[key]
