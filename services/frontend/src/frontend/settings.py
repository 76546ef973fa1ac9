"""The frontend's settings: parsed once, grouped and frozen. docs/settings.md lists them, docs/frontend.md explains them."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from servicekit.settings import ConfigurationError, SettingsGroup, load_group, suggest_unknown

PREFIXES = ("FRONTEND_", "OIDC_", "ANSWER_", "TRACES_", "GATEWAY_")
MIN_SECRET_BYTES = 32
TRACE_ID = "{trace_id}"
TRACES_URL = "{TRACES_URL}"
Environment = Literal["production", "development"]


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is this machine's own."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def checked_url(name: str, url: str, way_out: str, *, loopback_or_tls: bool = False) -> str:
    """`url` without a slash at its end; blank stays blank.

    Raises:
        ValueError: no absolute http(s) URL, or one with a query or credentials, or plain http to elsewhere where that is refused.
    """
    if not url:
        return url
    parts = urlsplit(url)
    plain = parts.scheme in ("http", "https") and parts.hostname and not (parts.query or parts.fragment or parts.username)
    if not plain:
        raise ValueError(f"{name} must be an http or https address without query and credentials. Correct it, or {way_out}.")
    if loopback_or_tls and parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise ValueError(f"{name} must be https, or http on the loopback. Correct it, or {way_out}.")
    return url.rstrip("/")


class SiteSettings(SettingsGroup):
    """Where the gateway is, where people find the pages, how their sessions are kept."""

    gateway_url: str = ""
    gateway_timeout_s: float = Field(35.0, gt=0, le=630)
    frontend_url: str = ""
    frontend_session_secret: SecretStr = SecretStr("")
    frontend_session_hours: float = Field(8.0, gt=0, le=24)
    knowledge_env: Environment = "production"

    @property
    def development(self) -> bool:
        """Whether development conveniences are allowed."""
        return self.knowledge_env == "development"

    def session_secret(self) -> str:
        """What sessions are encrypted with; in development without the setting one of this process's own."""
        return self.frontend_session_secret.get_secret_value() or secrets.token_hex(MIN_SECRET_BYTES)

    @model_validator(mode="after")
    def _usable(self) -> "SiteSettings":
        development = "or set KNOWLEDGE_ENV=development on a developer's machine."
        if not self.gateway_url:
            message = "GATEWAY_URL is not set. Set it to the gateway's address, such as http://127.0.0.1:8000, "
            raise ValueError(message + "or run `make up`, which writes it into .env.")
        checked_url("GATEWAY_URL", self.gateway_url, "take the address that the gateway printed at its start")
        secret = self.frontend_session_secret.get_secret_value()
        if secret and len(secret.encode()) < MIN_SECRET_BYTES:
            message = f"FRONTEND_SESSION_SECRET is shorter than {MIN_SECRET_BYTES} bytes. "
            raise ValueError(message + "Set a longer one (openssl rand -hex 32), or unset it in development to have one made.")
        if not self.development and not secret:
            message = "FRONTEND_SESSION_SECRET is not set, and KNOWLEDGE_ENV is production. Set it (openssl rand -hex 32), "
            raise ValueError(message + development)
        if not self.development and not self.frontend_url.startswith("https://"):
            message = "FRONTEND_URL is no https address, and KNOWLEDGE_ENV is production. Set it to the address in people's browsers, "
            raise ValueError(message + development)
        checked_url("FRONTEND_URL", self.frontend_url, "unset it in development")
        return self


class LoginSettings(SettingsGroup):
    """Who lets people in: an OpenID provider, or in development personas whose tokens are signed here."""

    oidc_issuer: str = ""
    oidc_client_id: str = ""
    oidc_client_secret: SecretStr = SecretStr("")
    oidc_scopes: str = "openid profile"
    auth_jwt_secret: SecretStr = SecretStr("")
    auth_audience: str = ""
    auth_issuer: str = ""
    auth_roles_claim: str = "roles"
    auth_tenant_claim: str = "tenant"
    auth_operator_role: str = "knowledge-operator"
    auth_write_role: str = "knowledge-writer"
    knowledge_env: Environment = "production"

    @property
    def personas(self) -> bool:
        """Whether somebody may come in by choosing a persona."""
        return self.knowledge_env == "development" and bool(self.auth_jwt_secret.get_secret_value())

    @property
    def oidc(self) -> bool:
        """Whether there is an OpenID provider."""
        return bool(self.oidc_issuer)

    @field_validator("oidc_issuer")
    @classmethod
    def _issuer(cls, url: str) -> str:
        checked_url("OIDC_ISSUER", url, "unset it in development to log in as a persona", loopback_or_tls=True)
        return url

    @model_validator(mode="after")
    def _one_way_in(self) -> "LoginSettings":
        production, secret = self.knowledge_env == "production", self.auth_jwt_secret.get_secret_value()
        if production and secret:
            message = "AUTH_JWT_SECRET is set, and KNOWLEDGE_ENV is production, where the frontend must not be able to sign identities. "
            raise ValueError(message + "Unset it and set OIDC_ISSUER, or set KNOWLEDGE_ENV=development on a developer's machine.")
        if secret and len(secret.encode()) < MIN_SECRET_BYTES:
            message = f"AUTH_JWT_SECRET is shorter than {MIN_SECRET_BYTES} bytes. "
            raise ValueError(message + "Set the gateway's own, or set OIDC_ISSUER instead.")
        if not self.oidc and not secret:
            message = "OIDC_ISSUER is not set, so nobody could log in. Set it with OIDC_CLIENT_ID, "
            raise ValueError(message + "or set KNOWLEDGE_ENV=development and the gateway's AUTH_JWT_SECRET to log in as a persona.")
        if self.oidc and not self.oidc_client_id:
            raise ValueError("OIDC_CLIENT_ID is not set, and OIDC_ISSUER is. Set it, or unset OIDC_ISSUER in development.")
        if "openid" not in self.oidc_scopes.split():
            raise ValueError("OIDC_SCOPES does not name openid. Add it, or unset OIDC_SCOPES to use its default.")
        return self


class ConsoleSettings(SettingsGroup):
    """Where the console reads fallbacks: metrics from Prometheus, traces from a store with Jaeger's query API."""

    prometheus_url: str = ""
    traces_url: str = ""
    traces_link: str = f"{TRACES_URL}/trace/{TRACE_ID}"

    def trace_link(self, trace_id: str) -> str:
        """Where a person looks at a trace; blank if nowhere."""
        if TRACES_URL in self.traces_link and not self.traces_url:
            return ""
        return self.traces_link.replace(TRACES_URL, self.traces_url).replace(TRACE_ID, trace_id)

    @field_validator("prometheus_url", "traces_url")
    @classmethod
    def _address(cls, url: str) -> str:
        return checked_url("PROMETHEUS_URL and TRACES_URL", url, "unset it to leave that part of the console empty")

    @field_validator("traces_link")
    @classmethod
    def _template(cls, link: str) -> str:
        if TRACE_ID not in link or not link.startswith(("https://", "http://", TRACES_URL)):
            message = f"TRACES_LINK must be an http or https address with {TRACE_ID} in it. "
            raise ValueError(message + f"Correct it, or unset it to use {TRACES_URL}/trace/{TRACE_ID}.")
        return link


class AnswerSettings(SettingsGroup):
    """Who writes answers over the passages; nobody by default."""

    answer_url: str = ""
    answer_model: str = ""
    answer_api_key: SecretStr = SecretStr("")
    answer_timeout_s: float = Field(60.0, gt=0, le=600)

    @model_validator(mode="after")
    def _complete(self) -> "AnswerSettings":
        checked_url("ANSWER_URL", self.answer_url, "unset it to go without written answers")
        if self.answer_url and not self.answer_model:
            raise ValueError("ANSWER_MODEL is not set, and ANSWER_URL is. Set it, or unset ANSWER_URL to go without written answers.")
        return self


class ProcessSettings(SettingsGroup):
    """What every service has."""

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"


@dataclass(frozen=True, slots=True)
class Settings:
    """All groups of the running frontend."""

    site: SiteSettings
    login: LoginSettings
    console: ConsoleSettings
    answer: AnswerSettings
    process: ProcessSettings

    def is_operator(self, roles: tuple[str, ...]) -> bool:
        """Whether these roles may see how an answer came about."""
        return self.login.auth_operator_role in roles


GROUPS: tuple[type[SettingsGroup], ...] = (SiteSettings, LoginSettings, ConsoleSettings, AnswerSettings, ProcessSettings)
Clock = Callable[[], float]
"""Seconds since the epoch."""


def load_settings() -> tuple[Settings, list[str]]:
    """Parse and check everything; returns the settings and warnings about unknown names.

    Raises:
        ConfigurationError: names the setting and two ways out.
    """
    settings = Settings(
        load_group(SiteSettings),
        load_group(LoginSettings),
        load_group(ConsoleSettings),
        load_group(AnswerSettings),
        load_group(ProcessSettings),
    )
    if settings.login.oidc and not settings.site.frontend_url:
        message = "FRONTEND_URL is not set, and OIDC_ISSUER is: the provider must know where to send people back. "
        raise ConfigurationError(message + "Set it to the address in people's browsers, or unset OIDC_ISSUER in development.")
    return settings, suggest_unknown(GROUPS, PREFIXES)
