"""The true app on an encoder without a model, on a clock that is set by hand."""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI

from embedding.app import create_app
from embedding.engine import Engine
from embedding.settings import EmbeddingSettings
from modelkit import Embedding
from modelkit.encoder import TextKind


class FakeEncoder:
    """A vector that tells text and kind apart; each text takes `seconds` on the clock, and may be held back by `hold`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.seconds = 0.0
        self.seen: list[tuple[str, str]] = []
        self.started = threading.Semaphore(0)
        self.hold: threading.Event | None = None

    def clock(self) -> float:
        """Seconds."""
        return self.now

    def embed(self, text: str, kind: TextKind) -> Embedding:
        """One text."""
        self.seen.append((text, kind))
        self.started.release()
        if self.hold is not None:
            self.hold.wait(20)
        self.now += self.seconds
        vector = np.zeros(384, np.float32)
        vector[len(text) % 384] = 0.6 if kind == "query" else 0.8
        return Embedding(vector, len(text) + 2, truncated=len(text) > 100)


@dataclass
class Running:
    """A started app and what it stands on."""

    app: FastAPI
    client: httpx.AsyncClient
    encoder: FakeEncoder

    async def embed(self, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
        """POST /embed."""
        return await self.client.post("/embed", json={"kind": "passage", **body}, headers=headers or {})


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the environment nor a `.env` in the folder where pytest was started."""
    monkeypatch.setattr("servicekit.settings.read_sources", dict)


StartApp = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def start_app() -> StartApp:
    """Start the app: `start_app(workers=..., loaded=..., <settings>)`."""

    @asynccontextmanager
    async def start(workers: int = 1, *, loaded: bool = True, **settings: Any) -> AsyncIterator[Running]:
        encoder = FakeEncoder()
        app = create_app(EmbeddingSettings(**settings), pytest.fail, load=lambda _: Engine(encoder, workers), clock=encoder.clock)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://embedding") as client:
            if not loaded:  # as before the lifespan began to load
                yield Running(app, client, encoder)
                return
            async with app.router.lifespan_context(app):
                app.state.service.engine.join()
                yield Running(app, client, encoder)

    return start
