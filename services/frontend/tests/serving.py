"""The whole app over fakes, and a browser's manners: cookies kept, the CSRF token read off the page."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from fastapi import FastAPI

from frontend.app import create_app
from frontend.settings import GROUPS, AnswerSettings, ConsoleSettings, LoginSettings, ProcessSettings, Settings, SiteSettings
from services.frontend.tests.fakes import GATEWAY, PERSONA_SECRET, SESSION_SECRET, FakeClock, FakeIssuer, FakeOutside

BASE = {"gateway_url": f"http://{GATEWAY}", "frontend_session_secret": SESSION_SECRET}
DEVELOPMENT = {**BASE, "knowledge_env": "development", "auth_jwt_secret": PERSONA_SECRET}
TOKEN = re.compile(r'<meta name="csrf-token" content="([^"]+)">')


def settings(**given: Any) -> Settings:
    """Settings by field name; without others those of a developer's machine."""
    base = given if "knowledge_env" in given else {**DEVELOPMENT, **given}
    unknown = set(base).difference(*(group.model_fields for group in GROUPS))
    assert not unknown, unknown

    def group(kind: type) -> Any:
        return kind(**{name: value for name, value in base.items() if name in kind.model_fields})

    return Settings(group(SiteSettings), group(LoginSettings), group(ConsoleSettings), group(AnswerSettings), group(ProcessSettings))


@dataclass
class Browser:
    """Somebody at the pages."""

    app: FastAPI
    http: httpx.AsyncClient
    outside: FakeOutside
    clock: FakeClock
    csrf: str = ""

    async def open(self, path: str) -> httpx.Response:
        """A page; its CSRF token is remembered."""
        response = await self.http.get(path, headers={"Accept": "text/html"})
        if found := TOKEN.search(response.text):
            self.csrf = found.group(1)
        return response

    async def submit(self, path: str, **fields: str) -> httpx.Response:
        """A form of the page."""
        return await self.http.post(path, data={"csrf_token": self.csrf, **fields})

    async def log_in(self, persona: str = "reader") -> httpx.Response:
        """Be a persona, and open the first page."""
        await self.open("/login")
        response = await self.submit("/login/persona", persona=persona, next="/")
        await self.open("/")
        return response

    async def post(self, path: str, **body: Any) -> httpx.Response:
        """What a script of the page sends."""
        return await self.http.post(path, json=body, headers={"X-CSRF-Token": self.csrf})


@asynccontextmanager
async def browsing(
    outside: FakeOutside | None = None, *, issuer: FakeIssuer | None = None, base_url: str = "http://frontend.test", **given: Any
) -> AsyncIterator[Browser]:
    """The app with its lifespan entered, and a browser in front of it."""
    outside, clock = outside or FakeOutside(), FakeClock()
    app = create_app(settings(**given), clock=clock, transport=outside.transport(), provider=issuer.transport() if issuer else None)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=base_url) as http:
            yield Browser(app, http, outside, clock)
