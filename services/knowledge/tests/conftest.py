"""No test sees the settings of the machine it runs on; hypothesis keeps no state between runs."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from knowledge.cli.common import ClientSettings
from knowledge.settings import GROUPS, PREFIXES

hypothesis_settings.register_profile(
    "gateway", deadline=None, max_examples=40, database=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("gateway")


@pytest.fixture(autouse=True)
def no_ambient_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Take the gateway's settings out of the environment and look for `.env` in an empty folder."""
    known = set().union(*(group.names() for group in GROUPS)) | ClientSettings.names() | {"HOST", "PORT", "CONFIG_FILE"}
    for name in list(os.environ):
        if name in known or name.startswith(PREFIXES):
            monkeypatch.delenv(name)
    monkeypatch.setattr("servicekit.settings.DOTENV", tmp_path / ".env")
