"""No test sees a `.env`, and none leaves the logging of the process changed."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog


@pytest.fixture(autouse=True)
def no_ambient_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Look for `.env` in an empty folder, and for none of the process's own names."""
    monkeypatch.setattr("servicekit.settings.DOTENV", tmp_path / ".env")
    for name in ("HOST", "PORT", "CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def logging_restored() -> Iterator[None]:
    """Put the root logger and structlog back as they were."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()
