"""Somebody before a browser: signs in, asks, looks. What the browser's console complains of is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from playwright.sync_api import Browser, BrowserContext, Locator, Page

from tests.parts import axe

ANSWER_MS = 30_000
LAPTOP = {"width": 1120, "height": 800}
PHONE = {"width": 360, "height": 740}
SCREENSHOTS = Path(".run/screenshots").resolve()
GRAVE = ("serious", "critical")
State = Literal["pending", "reranked", "partly", "fallback", "skipped", "error"]


@dataclass(slots=True)
class Visitor:
    """A browser window of one's own."""

    site: str
    context: BrowserContext
    page: Page
    complaints: list[str] = field(default_factory=list)

    def listen(self) -> None:
        """Keep errors of the console and exceptions of scripts."""
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def goto(self, path: str) -> None:
        """Open a page of the site, and wait until nothing is loading."""
        self.page.goto(self.site + path, wait_until="networkidle")

    def sign_in(self, persona: str, path: str = "/") -> None:
        """As one of the personas, then on to a page."""
        self.goto(f"/login?next={path}")
        self.page.click(f"#persona-{persona}")
        self.page.wait_for_url(f"{self.site}{path}")

    def ask(self, question: str, state: State | None = "reranked") -> Locator:
        """Ask in the chat; the newest turn, once it is in this state."""
        self.page.fill("#question", question)
        self.page.click("#send")
        return self.turn(state) if state else self.page.locator(".turn").last

    def turn(self, state: State) -> Locator:
        """The newest turn, once it is in this state."""
        self.page.wait_for_selector(f".turn:last-child[data-state={state}]", timeout=ANSWER_MS)
        return self.page.locator(".turn").last

    def look_up(self, term: str, state: State = "reranked") -> None:
        """Look a term up in the glossary."""
        self.page.fill("#term", term)
        self.page.click("#find")
        self.page.wait_for_selector(f"#state[data-state={state}]", timeout=ANSWER_MS)

    def inspect(self, query: str, deadline_ms: int | None = None) -> dict[str, Any]:
        """Run a query in the inspector; the answer that the page was given."""
        self.page.fill("#query", query)
        self.page.fill("#deadline", "" if deadline_ms is None else str(deadline_ms))
        with self.page.expect_response("**/api/search", timeout=ANSWER_MS) as given:
            self.page.click("#run")
        answer = cast("dict[str, Any]", given.value.json())
        # The summary names the answer's trace, so it is this answer that is shown.
        self.page.locator("#summary", has_text=str(answer["trace_id"])).wait_for(timeout=ANSWER_MS)
        return {**answer, "header": given.value.headers.get("x-reranker-fallback")}

    def width(self) -> int:
        """How wide the page's content is, in pixels."""
        return int(self.page.evaluate("document.documentElement.scrollWidth"))

    def findings(self) -> list[str]:
        """What axe-core has to say of the page as it is now, serious and critical findings only."""
        # By the debugger's protocol, because the pages' own policy lets no such script in.
        session = self.context.new_cdp_session(self.page)
        session.send("Runtime.evaluate", {"expression": axe.find(os.environ).read_text(encoding="utf-8")})
        found = self.page.evaluate("axe.run().then(({violations, passes}) => ({violations, passes: passes.length}))")
        assert found["passes"] > 10, "axe-core looked at next to nothing"
        return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found["violations"] if one["impact"] in GRAVE]

    def picture(self, name: str, height: int = 0) -> None:
        """Keep what is on the screen, or would be if it were this high in pixels."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        usual = self.page.viewport_size
        assert usual is not None
        if height:
            self.page.set_viewport_size({"width": usual["width"], "height": height})
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", animations="disabled")
        self.page.set_viewport_size(usual)


@contextmanager
def visiting(browser: Browser, site: str, **options: Any) -> Iterator[Visitor]:
    """A fresh window in English on a laptop, unless Playwright's `options` say otherwise."""
    context = browser.new_context(**{"locale": "en-GB", "viewport": LAPTOP, **options})
    try:
        visitor = Visitor(site, context, context.new_page())
        visitor.listen()
        yield visitor
    finally:
        context.close()


def ids(turn: Locator) -> list[str]:
    """The passages of a turn, from the top."""
    return [str(one.get_attribute("data-passage-id")) for one in turn.locator("li.passage").all()]
