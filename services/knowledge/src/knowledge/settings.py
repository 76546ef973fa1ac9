"""The gateway's settings: parsed once, grouped and frozen. Names and defaults are the contract; docs/settings.md lists them."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from platformdirs import user_data_path
from pydantic import BeforeValidator, Field, SecretStr, ValidationInfo, field_validator, model_validator

from knowledge.lexicon import LexiconError, read_compound_words, read_synonyms
from servicekit.settings import ConfigurationError, SettingsGroup, load_group, suggest_unknown

PREFIXES = (
    *("SEARCH_", "EMBEDDED_", "EMBEDDING_", "OPENSEARCH_", "RETRIEVAL_", "RRF_", "LEXICAL_", "VECTOR_", "IDENTIFIER_"),
    *("MIN_SIMILARITY", "USE_IMPORTANCE", "TEXT_FIELDS", "FILTERABLE_", "MAX_CONCURRENT_", "GERMAN_", "SYNONYM"),
    *("RERANKER_", "RERANK_", "AUTH_", "KNOWLEDGE_"),
)
# Settings of the sibling services: a .env that all share must not be called wrong.
SIBLINGS = frozenset(
    {
        *("EMBEDDING_MODEL", "EMBEDDING_DEADLINE_S"),
        *("RERANK_MODEL", "RERANK_DEADLINE_S", "RERANK_PRECISION", "RERANK_API_KEY", "RERANK_API_KEY_FILE"),
        *("RERANK_CACHE_ENTRIES", "RERANK_PASSAGE_CACHE_MB", "RERANK_CASCADE_MODEL", "RERANK_SETTLED_AFTER", "RERANK_SETTLED_TOP"),
    }
)
FIELD_NAME = r"^[a-z][a-z0-9_]{0,63}$"


def _names(value: Any) -> Any:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


Names = Annotated[tuple[Annotated[str, Field(pattern=FIELD_NAME)], ...], BeforeValidator(_names)]


def settings_that_fit(initial_k: int, max_document_chars: int, budget: int) -> tuple[str, str] | None:
    """None if the settings fit the budget, else two changes of which either makes them fit."""
    if initial_k * max_document_chars <= budget:
        return None
    fewer = f"RERANKER_INITIAL_K={max(1, budget // max_document_chars)} with RERANKER_MAX_DOCUMENT_CHARS="
    fewer += str(min(max_document_chars, budget))
    shorter = f"RERANKER_INITIAL_K={min(initial_k, budget)} with RERANKER_MAX_DOCUMENT_CHARS={max(1, budget // initial_k)}"
    return fewer, shorter


class SearchSettings(SettingsGroup):
    """Where passages are found and how legs are fused."""

    search_backend: Literal["embedded", "opensearch"] = "embedded"
    embedded_path: Path = Field(default_factory=lambda: user_data_path("knowledge-gateway") / "knowledge.db")
    opensearch_url: str = ""
    opensearch_index: str = Field("knowledge", pattern=r"^[a-z0-9][a-z0-9_-]{0,127}$")
    opensearch_username: str = ""
    opensearch_password: SecretStr = SecretStr("")
    opensearch_ca_file: Path | None = None
    opensearch_client_cert_file: Path | None = None
    opensearch_client_key_file: Path | None = None
    opensearch_shards: int = Field(1, ge=1, le=1024)
    opensearch_replicas: int | None = Field(None, ge=0, le=1024)
    embedding_url: str = "http://127.0.0.1:8080"
    retrieval_depth: int = Field(50, ge=50, le=1000)
    rrf_k: int = Field(60, ge=1, le=1000)
    # Chosen on development data, see docs/benchmarks.md: equal weights lose to the vector leg alone where words differ.
    lexical_weight: float = Field(0.03, ge=0, le=100)
    # Reached where question and passage share many words; at `lexical_weight` or below it, that one is fixed.
    lexical_weight_max: float = Field(1.0, ge=0, le=100)
    vector_weight: float = Field(1.0, ge=0, le=100)
    identifier_weight: float = Field(0.05, ge=0, le=100)
    min_similarity: float | None = Field(None, ge=-1, le=1)
    use_importance: bool = False
    text_fields: Names = ("title", "content")
    filterable_fields: Names = ("language", "category", "tags")
    german_compound_words_file: Path | None = None
    synonyms_file: Path | None = None
    max_concurrent_searches: int = Field(64, ge=1, le=4096)
    knowledge_env: Literal["production", "development"] = "production"

    @field_validator("german_compound_words_file", "synonyms_file")
    @classmethod
    def _readable(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        name = str(info.field_name).upper()
        try:
            if path is not None:
                (read_synonyms if name == "SYNONYMS_FILE" else read_compound_words)(path)
        except LexiconError as error:
            raise ValueError(f"{name}: {error}. Correct the file, or unset {name} to go without it.") from None
        return path

    @model_validator(mode="after")
    def _certificates(self) -> "SearchSettings":
        authority, own, key = self.opensearch_ca_file, self.opensearch_client_cert_file, self.opensearch_client_key_file
        if bool(own) != bool(key):
            given, missing = ("CERT", "KEY") if own else ("KEY", "CERT")
            message = f"OPENSEARCH_CLIENT_{given}_FILE is set, and OPENSEARCH_CLIENT_{missing}_FILE is not. "
            raise ValueError(message + "Set both to call the cluster with a certificate, or unset both to go without one.")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if authority:
                context.load_verify_locations(authority)
        except OSError:
            message = "OPENSEARCH_CA_FILE cannot be read as certificates. Correct it, "
            raise ValueError(message + "or unset it to trust the authorities of the system.") from None
        try:
            if own and key:
                # With a password, lest a key that wants one has the process wait for somebody to type it.
                context.load_cert_chain(own, key, password="")
        except (OSError, ValueError):
            message = "OPENSEARCH_CLIENT_CERT_FILE and OPENSEARCH_CLIENT_KEY_FILE are not a certificate and its key without a passphrase. "
            raise ValueError(message + "Correct them, or unset both to go without a client certificate.") from None
        return self

    @model_validator(mode="after")
    def _complete(self) -> "SearchSettings":
        if self.search_backend == "opensearch" and not self.opensearch_url:
            message = "OPENSEARCH_URL is not set, and SEARCH_BACKEND is opensearch. Set it, or set SEARCH_BACKEND=embedded."
            raise ValueError(message)
        if not self.text_fields:
            raise ValueError("TEXT_FIELDS is empty. Name at least one field, or unset it to use title,content.")
        reserved = {"tenant", "allowed_roles", "allowed_subjects"}.intersection(self.filterable_fields)
        if reserved:
            message = f"FILTERABLE_FIELDS names {min(reserved)}, which the signed identity decides. "
            raise ValueError(message + "Remove it, or unset FILTERABLE_FIELDS.")
        return self


class RerankerSettings(SettingsGroup):
    """Who reranks, how much, how long."""

    aliases: ClassVar[Mapping[str, str]] = {"RERANKER_CANDIDATES": "RERANKER_INITIAL_K", "RERANKER_TOP_N": "RERANKER_TOP_K"}

    reranker_enabled: bool = True
    reranker_provider: Literal["sidecar", "none"] = "sidecar"
    reranker_url: str = ""
    reranker_api_key: SecretStr = SecretStr("")
    reranker_model: str = ""
    reranker_initial_k: int = Field(15, ge=1, le=100)
    reranker_max_document_chars: int = Field(500, ge=1, le=16_384)
    reranker_max_query_chars: int = Field(500, ge=1, le=4096)
    reranker_top_k: int = Field(5, ge=1, le=50)
    reranker_timeout_s: float = Field(27.0, gt=0, le=600)
    reranker_permanent_errors: Literal["fallback", "error"] = "fallback"
    rerank_scored_chars_budget: int = Field(7500, ge=1)
    rerank_excerpt: Literal["lead"] = "lead"

    @model_validator(mode="after")
    def _within_budget(self) -> "RerankerSettings":
        ways = settings_that_fit(self.reranker_initial_k, self.reranker_max_document_chars, self.rerank_scored_chars_budget)
        if ways is not None:
            product = self.reranker_initial_k * self.reranker_max_document_chars
            message = f"RERANKER_INITIAL_K x RERANKER_MAX_DOCUMENT_CHARS is {product}, over RERANK_SCORED_CHARS_BUDGET "
            message += f"({self.rerank_scored_chars_budget}). Settings that fit: {ways[0]}; or {ways[1]}."
            raise ValueError(message)
        return self


class TimeSettings(SettingsGroup):
    """How long a request and its stages may take, in seconds."""

    search_deadline_s: float = Field(30.0, ge=0.1, le=600)
    embedding_timeout_s: float = Field(5.0, gt=0, le=600)
    retrieval_timeout_s: float = Field(5.0, gt=0, le=600)


class IdentitySettings(SettingsGroup):
    """Who may ask: the signed token's rules."""

    auth_jwt_secret: SecretStr = SecretStr("")
    auth_jwks_url: str = ""
    auth_issuer: str = ""
    auth_audience: str = ""
    auth_roles_claim: str = "roles"
    auth_tenant_claim: str = "tenant"
    auth_write_role: str = "knowledge-writer"
    auth_operator_role: str = "knowledge-operator"
    knowledge_env: Literal["production", "development"] = "production"

    @property
    def development(self) -> bool:
        """Whether development conveniences are allowed."""
        return self.knowledge_env == "development"

    @field_validator("auth_jwks_url")
    @classmethod
    def _https_or_loopback(cls, url: str) -> str:
        parts = urlsplit(url)
        if url and parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname or "")):
            raise ValueError("AUTH_JWKS_URL must be https, or http on the loopback. Correct it, or use AUTH_JWT_SECRET.")
        return url

    @model_validator(mode="after")
    def _one_key_source(self) -> "IdentitySettings":
        secret = self.auth_jwt_secret.get_secret_value()
        if bool(secret) == bool(self.auth_jwks_url):
            which = "both set" if secret else "both unset"
            message = f"AUTH_JWT_SECRET and AUTH_JWKS_URL are {which}. Set AUTH_JWKS_URL to use an identity provider, "
            raise ValueError(message + "or AUTH_JWT_SECRET (32 bytes or more) to share a secret: exactly one of them.")
        if secret and len(secret.encode()) < 32:
            raise ValueError("AUTH_JWT_SECRET is shorter than 32 bytes. Set a longer one, or use AUTH_JWKS_URL instead.")
        if not self.development and not self.auth_audience:
            message = "AUTH_AUDIENCE is not set, and KNOWLEDGE_ENV is production. Set it to the audience of your tokens, "
            raise ValueError(message + "or set KNOWLEDGE_ENV=development on a developer's machine.")
        return self


class ProcessSettings(SettingsGroup):
    """What every service has."""

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True)
class Settings:
    """All groups of the running gateway."""

    search: SearchSettings
    reranker: RerankerSettings
    time: TimeSettings
    identity: IdentitySettings
    process: ProcessSettings


GROUPS: tuple[type[SettingsGroup], ...] = (SearchSettings, RerankerSettings, TimeSettings, IdentitySettings, ProcessSettings)


def load_settings() -> tuple[Settings, list[str]]:
    """Parse and check everything; returns the settings and warnings about unknown names.

    Raises:
        ConfigurationError: names the setting and two ways out.
    """
    settings = Settings(
        load_group(SearchSettings),
        load_group(RerankerSettings),
        load_group(TimeSettings),
        load_group(IdentitySettings),
        load_group(ProcessSettings),
    )
    check_nesting(settings.time, settings.reranker)
    return settings, suggest_unknown(GROUPS, PREFIXES, SIBLINGS)


def check_nesting(time: TimeSettings, reranker: RerankerSettings) -> None:
    """Each inner time-out must end before the outer one, or an inner failure could never be told and fallen back from."""
    outer = time.search_deadline_s
    inner = {
        "EMBEDDING_TIMEOUT_S": time.embedding_timeout_s,
        "RETRIEVAL_TIMEOUT_S": time.retrieval_timeout_s,
        "RERANKER_TIMEOUT_S": reranker.reranker_timeout_s,
    }
    for name, value in inner.items():
        if value >= outer:
            message = f"{name} ({value:g}) must be below SEARCH_DEADLINE_S ({outer:g}). "
            raise ConfigurationError(message + f"Lower {name}, or raise SEARCH_DEADLINE_S.")
