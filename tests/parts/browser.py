"""A real Chromium without any history, from PATH; nothing is downloaded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.parts import MissingPart

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOW = "Debian: apt-get install --no-install-recommends chromium fonts-dejavu-core; macOS: brew install --cask chromium"
QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)


def find_chromium() -> Path:
    """The browser's program.

    Raises MissingPart if there is none; the message says how to get it.
    """
    for name in NAMES:
        if found := shutil.which(name):
            return Path(found)
    raise MissingPart(f"chromium is missing: put it on PATH ({HOW}).")


@contextmanager
def chromium() -> Iterator[Browser]:
    """The running program. Each of its contexts is a browser without history, and takes milliseconds instead of seconds."""
    from playwright.sync_api import sync_playwright

    program = str(find_chromium())
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, headless=True, args=list(QUIET))
        try:
            yield running
        finally:
            running.close()


@contextmanager
def browser(**options: Any) -> Iterator[BrowserContext]:
    """One browser; `options` are those of Playwright's context (locale, viewport, color_scheme)."""
    with chromium() as running:
        yield running.new_context(**options)
