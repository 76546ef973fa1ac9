"""The gateway's settings: what stops the start, what the message says, and that the ways out it names are ways out."""

import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from knowledge.settings import (
    IdentitySettings,
    RerankerSettings,
    SearchSettings,
    Settings,
    TimeSettings,
    check_nesting,
    load_settings,
    settings_that_fit,
)
from servicekit.settings import ConfigurationError, load_group
from services.knowledge.tests.serving import SECRET
from tests.parts.opensearch.certificates import Authority

FIT = re.compile(r"RERANKER_INITIAL_K=(\d+) with RERANKER_MAX_DOCUMENT_CHARS=(\d+)")


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The least that lets the settings load."""
    monkeypatch.setenv("AUTH_JWT_SECRET", SECRET)
    monkeypatch.setenv("KNOWLEDGE_ENV", "development")
    return monkeypatch


def load() -> Settings:
    """The settings without the warnings."""
    return load_settings()[0]


def stops(*words: str) -> str:
    """The message that stops the start; it holds these words."""
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    message = str(caught.value)
    for word in words:
        assert word in message, message
    assert SECRET not in message
    return message


def test_defaults_are_the_contract(env: pytest.MonkeyPatch) -> None:
    """The numbers of the design."""
    settings = load()
    reranker, search, time, identity = settings.reranker, settings.search, settings.time, settings.identity
    assert (reranker.reranker_initial_k, reranker.reranker_max_document_chars, reranker.rerank_scored_chars_budget) == (15, 500, 7500)
    assert (reranker.reranker_top_k, reranker.reranker_timeout_s, reranker.reranker_max_query_chars) == (5, 27.0, 500)
    assert (reranker.reranker_enabled, reranker.reranker_provider, reranker.reranker_url) == (True, "sidecar", "")
    assert reranker.reranker_permanent_errors == "fallback"
    assert (search.retrieval_depth, search.rrf_k, search.search_backend, search.min_similarity) == (50, 60, "embedded", None)
    # Chosen on development data: docs/decisions/0010-weight-by-shared-words.md.
    assert (search.lexical_weight, search.vector_weight, search.identifier_weight) == (0.03, 1.0, 0.05)
    assert (search.text_fields, search.use_importance) == (("title", "content"), False)
    assert (time.search_deadline_s, time.embedding_timeout_s, time.retrieval_timeout_s) == (30.0, 5.0, 5.0)
    assert (identity.auth_write_role, identity.auth_operator_role) == ("knowledge-writer", "knowledge-operator")


def test_production_is_the_default() -> None:
    """Development conveniences need to be asked for."""
    assert IdentitySettings(auth_jwt_secret=SECRET, auth_audience="x").development is False


def test_a_broken_budget_stops_the_start_and_names_two_settings_that_fit(env: pytest.MonkeyPatch) -> None:
    """The message holds both numbers, and each of the two suggestions really starts."""
    env.setenv("RERANKER_INITIAL_K", "20")
    message = stops("10000", "7500", "RERANK_SCORED_CHARS_BUDGET")
    suggestions = FIT.findall(message)
    assert len(suggestions) == 2
    for initial_k, max_chars in suggestions:
        env.setenv("RERANKER_INITIAL_K", initial_k)
        env.setenv("RERANKER_MAX_DOCUMENT_CHARS", max_chars)
        assert load().reranker.reranker_initial_k == int(initial_k)


@given(st.integers(1, 100), st.integers(1, 16_384), st.integers(1, 100_000))
def test_suggestions_always_fit(initial_k: int, max_chars: int, budget: int) -> None:
    """Whatever breaks the budget, both suggestions keep it, change one thing each, and never ask for more than before."""
    found = settings_that_fit(initial_k, max_chars, budget)
    assert (found is None) == (initial_k * max_chars <= budget)
    for suggestion in found or ():
        match = FIT.fullmatch(suggestion)
        assert match is not None
        suggested_k, suggested_chars = map(int, match.groups())
        fitting = RerankerSettings(
            reranker_initial_k=suggested_k, reranker_max_document_chars=suggested_chars, rerank_scored_chars_budget=budget
        )
        assert fitting.reranker_initial_k <= initial_k
        assert fitting.reranker_max_document_chars <= max_chars


def test_the_budget_may_be_used_up_exactly(env: pytest.MonkeyPatch) -> None:
    """15 x 500 is 7500, and that is allowed; one character more is not."""
    env.setenv("RERANK_SCORED_CHARS_BUDGET", "7500")
    assert load()
    env.setenv("RERANK_SCORED_CHARS_BUDGET", "7499")
    stops("7499")


@pytest.mark.parametrize("name", ["EMBEDDING_TIMEOUT_S", "RETRIEVAL_TIMEOUT_S", "RERANKER_TIMEOUT_S"])
def test_deadlines_must_nest(env: pytest.MonkeyPatch, name: str) -> None:
    """Each inner time-out must be below SEARCH_DEADLINE_S; the message names both."""
    env.setenv(name, "30")
    stops(name, "SEARCH_DEADLINE_S")
    env.setenv(name, "29.9")
    assert load()


def test_nesting_can_be_checked_by_itself() -> None:
    """The same rule for settings that did not come from the environment."""
    check_nesting(TimeSettings(search_deadline_s=28), RerankerSettings())
    with pytest.raises(ConfigurationError):
        check_nesting(TimeSettings(search_deadline_s=27), RerankerSettings())


@pytest.mark.parametrize(("alias", "name"), [("RERANKER_CANDIDATES", "RERANKER_INITIAL_K"), ("RERANKER_TOP_N", "RERANKER_TOP_K")])
def test_an_alias_unequal_to_its_name_stops_the_start(env: pytest.MonkeyPatch, alias: str, name: str) -> None:
    """Set alone or to the same value it works; set to another value the start is refused, naming both."""
    env.setenv(alias, "7")
    assert getattr(load().reranker, name.lower()) == 7
    env.setenv(name, "7")
    assert getattr(load().reranker, name.lower()) == 7
    env.setenv(name, "8")
    stops(alias, name)


def test_an_alias_equal_to_its_name_in_another_source_is_no_conflict(env: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`10` in the environment and 10 in the YAML file are the same value."""
    (tmp_path / "gateway.yaml").write_text("reranker_initial_k: 10\n")
    env.setenv("CONFIG_FILE", str(tmp_path / "gateway.yaml"))
    env.setenv("RERANKER_CANDIDATES", "10")
    assert load().reranker.reranker_initial_k == 10


def test_an_empty_alias_is_not_set(env: pytest.MonkeyPatch) -> None:
    """Charts and compose files leave empty variables behind: empty means unset, for aliases as for names."""
    env.setenv("RERANKER_CANDIDATES", "")
    env.setenv("RERANKER_INITIAL_K", "10")
    assert load().reranker.reranker_initial_k == 10
    env.setenv("RERANKER_CANDIDATES", "10")
    env.setenv("RERANKER_INITIAL_K", "")
    assert load().reranker.reranker_initial_k == 10


def test_an_empty_value_means_the_default(env: pytest.MonkeyPatch) -> None:
    """An empty variable is an unset one."""
    env.setenv("RERANKER_INITIAL_K", "")
    env.setenv("MIN_SIMILARITY", "")
    assert (load().reranker.reranker_initial_k, load().search.min_similarity) == (15, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RETRIEVAL_DEPTH", "49"),
        ("RERANKER_TOP_K", "51"),
        ("RERANKER_TOP_K", "0"),
        ("RERANKER_INITIAL_K", "many"),
        ("MIN_SIMILARITY", "1.5"),
        ("SEARCH_BACKEND", "solr"),
        ("RERANKER_PERMANENT_ERRORS", "ignore"),
        ("OPENSEARCH_INDEX", "Upper"),
        ("LEXICAL_WEIGHT", "-1"),
        ("RERANKER_ENABLED", "perhaps"),
        ("LOG_LEVEL", "LOUD"),
        ("TEXT_FIELDS", "title,Content!"),
    ],
)
def test_a_wrong_value_stops_the_start_and_names_the_setting(env: pytest.MonkeyPatch, name: str, value: str) -> None:
    """One sentence with the name and a way out, and without the value."""
    env.setenv(name, value)
    message = stops(name)
    assert "Correct" in message or "unset" in message.lower()


def test_reserved_fields_can_never_be_filters(env: pytest.MonkeyPatch) -> None:
    """FILTERABLE_FIELDS cannot name what the signed identity decides."""
    for name in ("tenant", "allowed_roles", "allowed_subjects"):
        env.setenv("FILTERABLE_FIELDS", f"language,{name}")
        stops("FILTERABLE_FIELDS", name)


def test_lists_are_read_with_commas_and_blanks(env: pytest.MonkeyPatch) -> None:
    """`a, b,` is a list of two."""
    env.setenv("TEXT_FIELDS", "title, content,")
    assert load().search.text_fields == ("title", "content")
    env.setenv("TEXT_FIELDS", " , ")
    stops("TEXT_FIELDS")


def test_opensearch_needs_its_address(env: pytest.MonkeyPatch) -> None:
    """SEARCH_BACKEND=opensearch without OPENSEARCH_URL names both ways out."""
    env.setenv("SEARCH_BACKEND", "opensearch")
    stops("OPENSEARCH_URL", "SEARCH_BACKEND=embedded")


def test_groups_are_frozen(env: pytest.MonkeyPatch) -> None:
    """Nothing changes a setting after the start."""
    with pytest.raises(ValueError, match="frozen"):
        load().search.rrf_k = 1  # type: ignore[misc]


def test_exactly_one_source_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither and both stop the start; the message names both settings."""
    monkeypatch.setenv("KNOWLEDGE_ENV", "development")
    stops("AUTH_JWT_SECRET", "AUTH_JWKS_URL", "unset")
    monkeypatch.setenv("AUTH_JWKS_URL", "https://idp.example/keys")
    assert load().identity.auth_jwks_url
    monkeypatch.setenv("AUTH_JWT_SECRET", SECRET)
    stops("AUTH_JWT_SECRET", "AUTH_JWKS_URL", "both set")


def test_a_short_secret_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """31 bytes are too few, 32 enough, and bytes count, not characters; the secret is not repeated."""
    monkeypatch.setenv("KNOWLEDGE_ENV", "development")
    monkeypatch.setenv("AUTH_JWT_SECRET", "s" * 31)
    assert "s" * 31 not in stops("AUTH_JWT_SECRET", "32")
    monkeypatch.setenv("AUTH_JWT_SECRET", "s" * 32)
    assert load()
    monkeypatch.setenv("AUTH_JWT_SECRET", "ü" * 16)
    assert load()


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://idp.example/keys", True),
        ("http://127.0.0.1:9000/keys", True),
        ("http://localhost/keys", True),
        ("http://[::1]:9000/keys", True),
        ("http://127.8.8.8/keys", True),
        ("http://idp.example/keys", False),
        ("http://localhost.evil.example/keys", False),
        ("http://10.0.0.1/keys", False),
        ("http://127.0.0.1.evil.example/keys", False),
        ("http://evil@idp.example/keys", False),
        ("ftp://127.0.0.1/keys", False),
        ("file:///etc/keys", False),
        ("idp.example/keys", False),
    ],
)
def test_a_jwks_address_must_be_https_or_loopback(monkeypatch: pytest.MonkeyPatch, url: str, allowed: bool) -> None:
    """Keys that travel in the clear could be anybody's."""
    monkeypatch.setenv("KNOWLEDGE_ENV", "development")
    monkeypatch.setenv("AUTH_JWKS_URL", url)
    if allowed:
        assert load().identity.auth_jwks_url == url
    else:
        stops("AUTH_JWKS_URL", "https")


def test_the_audience_is_mandatory_in_production(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it any token of the same provider would open the gateway."""
    monkeypatch.setenv("AUTH_JWT_SECRET", SECRET)
    stops("AUTH_AUDIENCE", "KNOWLEDGE_ENV")
    monkeypatch.setenv("AUTH_AUDIENCE", "gateway")
    assert load().identity.auth_audience == "gateway"


def test_secrets_do_not_show_themselves(env: pytest.MonkeyPatch) -> None:
    """Neither the settings nor their groups print a secret."""
    env.setenv("RERANKER_API_KEY", "very-secret-key")
    env.setenv("OPENSEARCH_PASSWORD", "very-secret-password")
    assert "very-secret" not in repr(load())
    assert SECRET not in repr(load())


def test_secrets_can_come_from_files(env: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`..._FILE` names a file; its content is trimmed; both at once stop the start."""
    env.delenv("AUTH_JWT_SECRET")
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    env.setenv("AUTH_JWT_SECRET_FILE", str(tmp_path / "secret"))
    assert load().identity.auth_jwt_secret.get_secret_value() == SECRET
    env.setenv("AUTH_JWT_SECRET", SECRET)
    stops("AUTH_JWT_SECRET", "AUTH_JWT_SECRET_FILE")


def test_a_short_secret_in_a_file_stops_the_start_too(env: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The rule is about the secret, wherever it comes from."""
    env.delenv("AUTH_JWT_SECRET")
    (tmp_path / "secret").write_text("short")
    env.setenv("AUTH_JWT_SECRET_FILE", str(tmp_path / "secret"))
    stops("AUTH_JWT_SECRET", "32")


def test_unknown_settings_are_warned_about_with_a_suggestion(env: pytest.MonkeyPatch) -> None:
    """A slip of the pen is not silent, and the right name is offered; other programs' variables are none of ours."""
    env.setenv("RERANKER_INTIAL_K", "10")
    env.setenv("SOMETHING_ELSE", "10")
    [warning] = load_settings()[1]
    assert "RERANKER_INTIAL_K" in warning
    assert "RERANKER_INITIAL_K" in warning


def test_no_warning_for_known_names(env: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Aliases and `_FILE` variants are known."""
    (tmp_path / "key").write_text("key")
    env.setenv("RERANKER_CANDIDATES", "10")
    env.setenv("RERANKER_API_KEY_FILE", str(tmp_path / "key"))
    assert load_settings()[1] == []


def test_a_group_can_be_loaded_alone(env: pytest.MonkeyPatch) -> None:
    """Commands load only what they need."""
    env.delenv("AUTH_JWT_SECRET")
    assert load_group(SearchSettings).retrieval_depth == 50


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("GERMAN_COMPOUND_WORDS_FILE", "Mangel\nzwei Worte\n", "line 2 is not one word"),
        ("SYNONYMS_FILE", "# rules\na, b\nallein\n", "line 3 names one synonym only"),
    ],
)
def test_a_file_of_words_that_is_wrong_stops_the_start(env: pytest.MonkeyPatch, tmp_path: Path, name: str, text: str, words: str) -> None:
    """The setting, the line and two ways out are named; absent is wrong too, empty is none."""
    file = tmp_path / "words.txt"
    env.setenv(name, str(file))
    stops(name, "cannot be read", "Correct the file, or unset")
    file.write_text(text, encoding="utf-8")
    stops(name, words, "Correct the file, or unset")
    file.write_text("# nothing yet\n", encoding="utf-8")
    assert load()
    env.setenv(name, "")
    search = load().search
    assert (search.german_compound_words_file, search.synonyms_file) == (None, None)


def test_a_near_name_of_a_file_of_words_is_a_warning(env: pytest.MonkeyPatch) -> None:
    """It would silently do nothing."""
    env.setenv("GERMAN_COMPOUNDS_FILE", "x")
    env.setenv("SYNONYM_FILE", "x")
    assert any("SYNONYMS_FILE" in warning for warning in load_settings()[1])
    assert any("GERMAN_COMPOUNDS_FILE" in warning for warning in load_settings()[1])


def test_a_client_certificate_is_whole_or_absent(env: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Both files or neither; a key that is another's, is not there or wants a passphrase stops the start too, and waits for nobody."""
    authority = Authority(tmp_path)
    own, other = authority.issue("gateway"), authority.issue("other")
    env.setenv("OPENSEARCH_CA_FILE", str(authority.certificate))
    env.setenv("OPENSEARCH_CLIENT_CERT_FILE", str(own.certificate))
    both = ("OPENSEARCH_CLIENT_CERT_FILE", "OPENSEARCH_CLIENT_KEY_FILE")
    stops(*both, "Set both", "or unset both")
    locked = tmp_path / "locked.pem"
    key = serialization.load_pem_private_key(own.key.read_bytes(), None)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"locked")
    locked.write_bytes(key.private_bytes(*form))
    for wrong in (other.key, tmp_path / "none", locked):
        env.setenv("OPENSEARCH_CLIENT_KEY_FILE", str(wrong))
        stops(*both, "Correct them, or unset both")
    env.setenv("OPENSEARCH_CLIENT_KEY_FILE", str(own.key))
    assert load().search.opensearch_client_key_file == own.key
    env.delenv("OPENSEARCH_CLIENT_CERT_FILE")
    stops(*both, "Set both", "or unset both")


def test_a_certificate_authority_that_is_none_stops_the_start(env: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Absent or not a certificate: not at the first search, but at the start."""
    file = tmp_path / "ca.pem"
    env.setenv("OPENSEARCH_CA_FILE", str(file))
    stops("OPENSEARCH_CA_FILE", "Correct it, or unset it")
    file.write_text("no certificate\n")
    stops("OPENSEARCH_CA_FILE", "Correct it, or unset it")


def test_shards_and_copies_of_an_index(env: pytest.MonkeyPatch) -> None:
    """One shard; a copy where there is a second node, unless a number is given, which may be 0."""
    search = load().search
    assert (search.opensearch_shards, search.opensearch_replicas) == (1, None)
    env.setenv("OPENSEARCH_SHARDS", "3")
    env.setenv("OPENSEARCH_REPLICAS", "0")
    search = load().search
    assert (search.opensearch_shards, search.opensearch_replicas) == (3, 0)
    env.setenv("OPENSEARCH_SHARDS", "0")
    stops("OPENSEARCH_SHARDS")
