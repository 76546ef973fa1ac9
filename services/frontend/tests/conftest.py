"""No test sees the settings of the machine it runs on."""

import pytest


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the environment nor a `.env` in the folder where pytest was started."""
    monkeypatch.setattr("servicekit.settings.read_sources", dict)
