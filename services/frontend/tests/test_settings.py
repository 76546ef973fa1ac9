"""Settings: what stops the start, and with which sentence."""

from pathlib import Path
from typing import Any

import pytest

from frontend.settings import GROUPS, ConsoleSettings, SiteSettings, load_settings
from servicekit.settings import ConfigurationError

SECRET = "x" * 32
DEVELOPMENT = {"GATEWAY_URL": "http://gateway", "KNOWLEDGE_ENV": "development", "AUTH_JWT_SECRET": SECRET}
PRODUCTION = {
    "GATEWAY_URL": "http://gateway",
    "FRONTEND_URL": "https://knowledge.example",
    "FRONTEND_SESSION_SECRET": SECRET,
    "OIDC_ISSUER": "https://issuer.example",
    "OIDC_CLIENT_ID": "frontend",
}


def given(monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]) -> None:
    """Set them as the environment would."""
    monkeypatch.setattr("servicekit.settings.read_sources", lambda: {name: value for name, value in values.items() if value is not None})


@pytest.mark.parametrize("values", [DEVELOPMENT, PRODUCTION])
def test_the_smallest_settings_start(monkeypatch: pytest.MonkeyPatch, values: dict[str, str]) -> None:
    """Both ways to run."""
    given(monkeypatch, values)
    settings, warnings = load_settings()
    assert warnings == []
    assert settings.login.personas == (values is DEVELOPMENT)
    assert settings.login.oidc == (values is PRODUCTION)


@pytest.mark.parametrize(
    ("base", "change", "named"),
    [
        (DEVELOPMENT, {"GATEWAY_URL": None}, ["GATEWAY_URL", "make up"]),
        (DEVELOPMENT, {"GATEWAY_URL": "gateway:8000"}, ["GATEWAY_URL must be"]),
        (DEVELOPMENT, {"GATEWAY_URL": "http://somebody@gateway"}, ["GATEWAY_URL must be"]),
        (DEVELOPMENT, {"AUTH_JWT_SECRET": None}, ["OIDC_ISSUER is not set", "AUTH_JWT_SECRET"]),
        (DEVELOPMENT, {"AUTH_JWT_SECRET": "short"}, ["AUTH_JWT_SECRET is shorter"]),
        (DEVELOPMENT, {"FRONTEND_SESSION_SECRET": "short"}, ["FRONTEND_SESSION_SECRET is shorter", "32"]),
        (DEVELOPMENT, {"OIDC_ISSUER": "https://issuer.example"}, ["OIDC_CLIENT_ID is not set"]),
        (DEVELOPMENT, {"OIDC_ISSUER": "https://issuer.example", "OIDC_CLIENT_ID": "x"}, ["FRONTEND_URL is not set", "OIDC_ISSUER"]),
        (DEVELOPMENT, {"ANSWER_URL": "http://writer"}, ["ANSWER_MODEL is not set", "ANSWER_URL"]),
        (DEVELOPMENT, {"TRACES_LINK": "http://traces/"}, ["TRACES_LINK", "{trace_id}"]),
        (DEVELOPMENT, {"TRACES_LINK": "javascript:{trace_id}"}, ["TRACES_LINK"]),
        (DEVELOPMENT, {"PROMETHEUS_URL": "prometheus"}, ["PROMETHEUS_URL"]),
        (PRODUCTION, {"FRONTEND_SESSION_SECRET": None}, ["FRONTEND_SESSION_SECRET is not set", "KNOWLEDGE_ENV=development"]),
        (PRODUCTION, {"FRONTEND_URL": "http://knowledge.example"}, ["FRONTEND_URL", "https"]),
        (PRODUCTION, {"AUTH_JWT_SECRET": SECRET}, ["AUTH_JWT_SECRET is set", "KNOWLEDGE_ENV is production"]),
        (PRODUCTION, {"OIDC_ISSUER": None}, ["OIDC_ISSUER is not set"]),
        (PRODUCTION, {"OIDC_ISSUER": "http://issuer.example"}, ["OIDC_ISSUER must be https"]),
        (PRODUCTION, {"OIDC_SCOPES": "profile"}, ["OIDC_SCOPES does not name openid"]),
    ],
)
def test_a_wrong_setting_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, base: dict[str, str], change: dict[str, str | None], named: list[str]
) -> None:
    """One sentence that names it and two ways out, and no secret."""
    given(monkeypatch, {**base, **change})
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    sentence = str(caught.value)
    assert all(word in sentence for word in named), sentence
    assert ", or " in sentence
    assert SECRET not in sentence


def test_secrets_may_come_from_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As `..._FILE`, each of them."""
    (tmp_path / "secret").write_text(SECRET + "\n")
    given(monkeypatch, {**PRODUCTION, "FRONTEND_SESSION_SECRET": None, "FRONTEND_SESSION_SECRET_FILE": str(tmp_path / "secret")})
    assert load_settings()[0].site.session_secret() == SECRET
    names = set().union(*(group.names() for group in GROUPS))
    assert {f"{name}_FILE" for name in ("OIDC_CLIENT_SECRET", "AUTH_JWT_SECRET", "ANSWER_API_KEY")} <= names


def test_an_unknown_name_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the right one."""
    given(monkeypatch, {**DEVELOPMENT, "FRONTEND_SESION_SECRET": "x"})
    assert load_settings()[1] == ["unknown setting FRONTEND_SESION_SECRET; did you mean FRONTEND_SESSION_SECRET?"]


def test_development_makes_a_session_secret() -> None:
    """A new one at each start."""
    site = SiteSettings(gateway_url="http://gateway", knowledge_env="development")
    assert len(site.session_secret()) >= 32
    assert site.session_secret() != site.session_secret()


def test_trace_links() -> None:
    """By default the store's own page, else the template; none without a store."""
    assert ConsoleSettings().trace_link("a1") == ""
    assert ConsoleSettings(traces_url="http://traces:16686/").trace_link("a1") == "http://traces:16686/trace/a1"
    assert ConsoleSettings(traces_link="https://people.example/t/{trace_id}").trace_link("a1") == "https://people.example/t/a1"
