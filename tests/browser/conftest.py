"""One set of services and one browser for the session; a window of its own for each test, in which nothing may be complained of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.browser.stack import Site, running_site
from tests.browser.visitor import Visitor, visiting
from tests.parts.browser import chromium

Visit = Callable[..., Visitor]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The program."""
    with chromium() as running:
        yield running


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """What stands behind the pages."""
    with running_site(tmp_path_factory.mktemp("kgtest-browser")) as running:
        yield running


@pytest.fixture
def visit(browser: Browser, site: Site) -> Iterator[Visit]:
    """Opens windows, as a laptop's in English or with Playwright's options. Fails if a console complained."""
    opened: list[Visitor] = []
    with ExitStack() as windows:

        def open_window(**options: Any) -> Visitor:
            opened.append(windows.enter_context(visiting(browser, site.frontend.url, **options)))
            return opened[-1]

        yield open_window
        site.services.faulty.mode = "passes"
    assert [complaint for one in opened for complaint in one.complaints] == []


@pytest.fixture
def visitor(visit: Visit) -> Visitor:
    """Somebody with a laptop."""
    return visit()
