"""A real Chromium with a profile of its own, from PATH; nothing is downloaded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tests.parts import MissingPart

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
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
    wanted = "Debian: apt-get install --no-install-recommends chromium fonts-dejavu-core; macOS: brew install --cask chromium"
    raise MissingPart(f"chromium is missing: put it on PATH ({wanted}).")


@contextmanager
def browser(**options: Any) -> Iterator[BrowserContext]:
    """A browser without any history; `options` are those of Playwright's persistent context (locale, viewport, color_scheme)."""
    from playwright.sync_api import sync_playwright

    program = str(find_chromium())
    with TemporaryDirectory(prefix="kgtest-browser-") as profile, sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            profile, executable_path=program, headless=True, args=list(QUIET), **options
        )
        try:
            yield context
        finally:
            context.close()
