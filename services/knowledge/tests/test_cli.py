"""The commands: what they print, what they refuse, and with which exit status."""

import json
import sys
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from click.testing import Result
from typer.testing import CliRunner

from knowledge.cli import app
from knowledge.errors import FallbackReason
from services.knowledge.tests.fakes import FakeBackend, FakeEmbedder, FakeReranker, failing
from services.knowledge.tests.serving import SECRET

DEVELOPMENT = {"AUTH_JWT_SECRET": SECRET, "KNOWLEDGE_ENV": "development"}
PRODUCTION = {"AUTH_JWT_SECRET": SECRET, "AUTH_AUDIENCE": "gateway"}


def module(command: str) -> Any:
    """The module of a command; in the package its name is the command itself."""
    return sys.modules[f"knowledge.cli.{command}"]


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    """One command; what it raised by mistake fails the test."""
    result = CliRunner().invoke(app, list(arguments), env=env if env is not None else DEVELOPMENT)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


class TestToken:
    """`knowledge token`."""

    def test_it_mints_what_the_gateway_accepts(self) -> None:
        """Tenant, subject, roles and time as given."""
        result = run("token", "--role", "a", "--role", "b", "--tenant", "t", "--subject", "s", "--ttl", "60")
        claims = jwt.decode(result.stdout.strip(), SECRET, algorithms=["HS256"])
        assert (claims["tenant"], claims["sub"], claims["roles"], claims["exp"] - claims["iat"]) == ("t", "s", ["a", "b"], 60)
        assert result.exit_code == 0

    def test_it_refuses_outside_development(self) -> None:
        """No token on stdout, a sentence with both ways out on stderr, exit status 2."""
        result = run("token", env=PRODUCTION)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "KNOWLEDGE_ENV=development" in result.stderr

    def test_it_refuses_without_a_shared_secret(self) -> None:
        """With an identity provider there is nothing to sign with."""
        result = run("token", env={"AUTH_JWKS_URL": "https://idp.example/keys", "KNOWLEDGE_ENV": "development"})
        assert (result.exit_code, result.stdout) == (2, "")
        assert "AUTH_JWKS_URL" in result.stderr

    def test_wrong_settings_are_a_sentence(self) -> None:
        """No traceback."""
        result = run("token", env={"KNOWLEDGE_ENV": "development", "AUTH_JWT_SECRET": "short"})
        assert (result.exit_code, result.stdout) == (2, "")
        assert "AUTH_JWT_SECRET" in result.stderr
        assert "Traceback" not in result.stderr

    @pytest.mark.parametrize("ttl", ["0", "-5", "700000"])
    def test_its_time_is_bounded(self, ttl: str) -> None:
        """From one second to a week."""
        assert run("token", "--ttl", ttl).exit_code == 2


def result_line(rank: int, hybrid_rank: int, title: str, rerank: float | None = None, similarity: float | None = None) -> dict[str, Any]:
    """A result as the gateway answers it."""
    scores = {"rrf": 0.0328, "similarity": similarity, "bm25": 7.126, "rerank": rerank}
    return {"rank": rank, "hybrid_rank": hybrid_rank, "title": title, "scores": scores}


def answer(**fields: Any) -> dict[str, Any]:
    """An answer of the gateway."""
    report = {
        "status": "applied",
        "reason": None,
        "provider": "sidecar",
        "model": "e5",
        "candidates": 15,
        "scored": 15,
        "elapsed_ms": 812.0,
    }
    base = {"results": [result_line(1, 3, "Gießen", 0.9412, 0.8312), result_line(2, 1, "[bold]Licht[/bold]", 0.5)], "rerank": report}
    return {**base, "degraded": [], "warnings": [], "elapsed_ms": 850.0, **fields}


class Gateway:
    """A gateway behind a scripted transport, in the place of `httpx.post`."""

    def __init__(self) -> None:
        self.response: httpx.Response | Exception = httpx.Response(200, json=answer())
        self.requests: list[httpx.Request] = []

    def post(self, url: str, **given: Any) -> httpx.Response:
        """As `httpx.post`."""
        assert given.pop("trust_env") is False

        def handle(request: httpx.Request) -> httpx.Response:
            self.requests.append(request)
            if isinstance(self.response, Exception):
                raise self.response
            return self.response

        with httpx.Client(transport=httpx.MockTransport(handle)) as client:
            return client.post(url, **given)


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Gateway:
    """The gateway that the command talks to."""
    fake = Gateway()
    monkeypatch.setattr(module("asking").httpx, "post", fake.post)
    return fake


class TestSearch:
    """`knowledge search`."""

    def test_it_prints_a_table_and_the_line_on_reranking(self, gateway: Gateway) -> None:
        """Rank now and before, title, scores; missing scores as a dash; titles are text, not markup."""
        result = run("search", "Wie oft gießen?")
        assert result.exit_code == 0
        text = result.stdout
        header = text.splitlines()[0]
        assert [word for word in ("rank", "before", "title", "rerank", "cosine", "bm25", "rrf") if word not in header] == []
        for piece in ("3 (+2)", "1 (-1)", "Gießen", "[bold]Licht[/bold]", "0.941", "0.831", "7.13", "0.0328"):
            assert piece in text
        assert "reranked: 15 of 15 passages scored by e5, 812 ms of 850 ms" in text

    @pytest.mark.parametrize(
        ("report", "degraded", "expected"),
        [
            ({"status": "fallback", "reason": "client_timeout"}, [], "not reranked, hybrid order: client_timeout (850 ms)"),
            ({"status": "skipped", "reason": "not_configured"}, ["vector"], "not reranked: not_configured (850 ms); degraded: vector"),
            ({"status": "partial", "reason": "deadline", "scored": 7}, [], "partly reranked (deadline): 7 of 15 passages"),
        ],
    )
    def test_the_reason_is_said(self, gateway: Gateway, report: dict[str, Any], degraded: list[str], expected: str) -> None:
        """Nothing is silent: fallback, skip and part, with the degradation."""
        gateway.response = httpx.Response(200, json=answer(rerank={**answer()["rerank"], **report}, degraded=degraded))
        assert expected in run("search", "x").stdout

    def test_warnings_and_no_results(self, gateway: Gateway) -> None:
        """Both are said."""
        gateway.response = httpx.Response(200, json=answer(results=[], warnings=["min_similarity: not applied"]))
        text = run("search", "x").stdout
        assert "no results" in text
        assert "warning: min_similarity: not applied" in text

    def test_what_is_sent(self, gateway: Gateway) -> None:
        """Only what was given, with a minted token for the named roles."""
        run("search", "frage", "--top-k", "3", "--role", "editor", "--no-rerank", "--deadline-ms", "500", "--url", "http://gw:1/")
        [request] = gateway.requests
        assert str(request.url) == "http://gw:1/search"
        assert json.loads(request.content) == {"query": "frage", "top_k": 3, "rerank": False, "deadline_ms": 500}
        claims = jwt.decode(request.headers["authorization"].removeprefix("Bearer "), SECRET, algorithms=["HS256"])
        assert claims["roles"] == ["editor"]

    def test_a_token_of_ones_own_needs_no_development_mode(self, gateway: Gateway) -> None:
        """In production the caller brings a token."""
        assert run("search", "x", "--token", "abc", env={"GATEWAY_URL": "http://gw:2"}).exit_code == 0
        assert gateway.requests[0].headers["authorization"] == "Bearer abc"
        assert str(gateway.requests[0].url) == "http://gw:2/search"

    def test_a_token_of_the_settings_is_brought_unless_roles_are_named(self, gateway: Gateway, tmp_path: Path) -> None:
        """GATEWAY_TOKEN, or the file that it stands in; `--role` asks as somebody else."""
        (tmp_path / "token").write_text("from-a-file\n")
        run("search", "x", env={**PRODUCTION, "GATEWAY_TOKEN": "abc"})
        run("search", "x", env={"GATEWAY_TOKEN_FILE": str(tmp_path / "token")})
        run("search", "x", "--role", "editor", env={**DEVELOPMENT, "GATEWAY_TOKEN": "abc"})
        brought = [request.headers["authorization"].removeprefix("Bearer ") for request in gateway.requests]
        assert brought[:2] == ["abc", "from-a-file"]
        assert jwt.decode(brought[2], SECRET, algorithms=["HS256"])["roles"] == ["editor"]

    def test_roles_are_refused_outside_development(self, gateway: Gateway) -> None:
        """`--role` mints, and production does not mint."""
        result = run("search", "x", "--role", "reader", env=PRODUCTION)
        assert result.exit_code == 2
        assert gateway.requests == []

    def test_json(self, gateway: Gateway) -> None:
        """The whole answer, and nothing else, on stdout."""
        assert json.loads(run("search", "x", "--json").stdout) == answer()

    @pytest.mark.parametrize(
        ("response", "words"),
        [
            (httpx.Response(422, json={"code": "invalid_request", "detail": "top_k: too much"}), ["invalid_request", "422", "top_k"]),
            (httpx.Response(502, text="<html>"), ["no gateway", "502"]),
            (httpx.ConnectError("refused"), ["ConnectError", "--url"]),
            (httpx.ReadTimeout("late"), ["ReadTimeout"]),
            (httpx.Response(404, json=["not", "a", "gateway"]), ["404"]),
        ],
    )
    def test_a_failure_is_one_sentence(self, gateway: Gateway, response: Any, words: list[str]) -> None:
        """Exit status 1, on stderr, without a traceback."""
        gateway.response = response
        result = run("search", "x")
        assert (result.exit_code, result.stdout) == (1, "")
        for word in words:
            assert word in result.stderr
        assert "Traceback" not in result.stderr

    def test_wrong_settings_are_a_sentence(self, gateway: Gateway) -> None:
        """A CONFIG_FILE that is not there stops the command with status 2."""
        result = run("search", "x", env={**DEVELOPMENT, "CONFIG_FILE": "/nowhere/at/all.yaml"})
        assert result.exit_code == 2
        assert "CONFIG_FILE" in result.stderr


class Index:
    """The adapters of the commands, as fakes that outlive a run."""

    def __init__(self) -> None:
        self.backend, self.embedder = FakeBackend(), FakeEmbedder()
        self.reranker: FakeReranker | None = FakeReranker()
        self.embedder.facts["deadline_s"] = 4.0
        self.reranker.facts = {"deadline_s": 25.0, "scored_chars_budget": 7500}


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Index:
    """What the commands find."""
    fakes = Index()
    for command in ("ingest", "doctor"):
        monkeypatch.setattr(module(command), "new_backend", lambda *_: fakes.backend)
        monkeypatch.setattr(module(command), "new_embedder", lambda *_: fakes.embedder)
    monkeypatch.setattr(module("doctor"), "new_reranker", lambda *_: fakes.reranker)
    return fakes


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two documents; the command runs beside it."""
    monkeypatch.chdir(tmp_path)
    found = tmp_path / "docs"
    found.mkdir()
    (found / "a.md").write_text("# A\n\nWasser.")
    (found / "b.txt").write_text("Licht.")
    return found


class TestIngest:
    """`knowledge ingest`."""

    def test_a_clean_run_is_zero_and_says_what_was_done(self, index: Index, folder: Path) -> None:
        """Counts on stdout, an empty rejects file, everything in the development tenant."""
        result = run("ingest", str(folder), "--allowed-roles", "reader, editor")
        assert result.exit_code == 0, result.stderr
        assert "2 documents, 2 chunks: 2 chunks written, 2 embedded, 0 deleted" in result.stdout
        found = list(index.backend.records.values())
        assert {(one.tenant, one.source, one.allowed_roles) for one in found} == {("default", "files", ("editor", "reader"))}
        assert (folder.parent / "rejects.jsonl").read_text() == ""
        assert index.backend.closed
        assert index.embedder.closed

    def test_a_second_run_does_nothing(self, index: Index, folder: Path) -> None:
        """And says so."""
        run("ingest", str(folder))
        assert "0 chunks written, 0 embedded" in run("ingest", str(folder)).stdout

    def test_rejects_are_status_one_with_a_file(self, index: Index, folder: Path) -> None:
        """The rest goes in; each reject is shown and written."""
        (folder / "c.yaml").write_text("chunks: [")
        result = run("ingest", str(folder), "--rejects", "out.jsonl")
        assert result.exit_code == 1
        assert "rejected: c.yaml" in result.stdout
        assert len(index.backend.records) == 2
        assert json.loads((folder.parent / "out.jsonl").read_text())["place"] == "c.yaml"

    def test_the_tenant_is_required_in_production(self, index: Index, folder: Path) -> None:
        """Status 2, nothing written; with a tenant it runs, without any signing keys."""
        result = run("ingest", str(folder), env={})
        assert result.exit_code == 2
        assert "--tenant" in result.stderr
        assert index.backend.writes == []
        assert run("ingest", str(folder), "--tenant", "acme", env={}).exit_code == 0
        assert {one.tenant for one in index.backend.records.values()} == {"acme"}

    def test_a_language_that_is_none_is_refused(self, index: Index, folder: Path) -> None:
        """What a document may not name the command may not either: no record gets `Deutsch` for its language."""
        assert run("ingest", str(folder), "--language", "de").exit_code == 0
        assert {one.language for one in index.backend.records.values()} == {"de"}
        assert run("ingest", str(folder), "--language", "Deutsch!").exit_code != 0
        assert {one.language for one in index.backend.records.values()} == {"de"}

    def test_an_empty_folder_is_status_one(self, index: Index, tmp_path: Path) -> None:
        """With the endings that are read."""
        result = run("ingest", str(tmp_path))
        assert result.exit_code == 1
        assert ".md" in result.stderr

    def test_a_folder_that_is_not_there_is_status_two(self, index: Index, tmp_path: Path) -> None:
        """A usage error."""
        assert run("ingest", str(tmp_path / "nowhere")).exit_code == 2

    def test_a_dead_embedding_service_is_one_sentence(self, index: Index, folder: Path) -> None:
        """Naming the address and both ways out."""
        index.embedder.down = True
        result = run("ingest", str(folder))
        assert result.exit_code == 1
        assert "EMBEDDING_URL" in result.stderr
        assert "Traceback" not in result.stderr

    def test_a_mismatch_is_the_backends_sentence(self, index: Index, folder: Path) -> None:
        """And no traceback."""
        index.backend.mismatch = "made for another model"
        result = run("ingest", str(folder))
        assert (result.exit_code, "made for another model" in result.stderr) == (1, True)

    def test_prune_is_said(self, index: Index, folder: Path) -> None:
        """What was deleted, or that nothing could be."""
        run("ingest", str(folder))
        (folder / "a.md").unlink()
        assert "pruned 1 documents" in run("ingest", str(folder), "--prune").stdout
        (folder / "c.jsonl").write_text("{")
        result = run("ingest", str(folder), "--prune")
        assert (result.exit_code, "nothing pruned" in result.stdout) == (1, True)

    def test_documents_that_nobody_sees_are_said(self, index: Index, folder: Path) -> None:
        """With the option that changes it."""
        assert "--allowed-roles" in run("ingest", str(folder)).stdout


class TestDoctor:
    """`knowledge doctor`."""

    def test_all_is_well(self, index: Index) -> None:
        """Each line `ok`, status 0, everything closed."""
        result = run("doctor")
        assert result.exit_code == 0, result.stdout
        lines = [line for line in result.stdout.splitlines() if line.strip()]
        assert len(lines) >= 6
        assert all(line.startswith("ok ") for line in lines), result.stdout
        for word in ("settings", "embedding-service", "index (embedded)", "reranker", "deadlines", "budget"):
            assert word in result.stdout
        assert index.backend.closed
        assert index.embedder.closed
        assert index.reranker is not None
        assert index.reranker.closed

    def test_no_reranker_is_a_warning(self, index: Index) -> None:
        """Searches are hybrid then, and the line says which setting changes that; status 0."""
        index.reranker = None
        result = run("doctor")
        assert result.exit_code == 0
        [line] = [line for line in result.stdout.splitlines() if "reranker" in line]
        assert line.startswith("warning")
        assert "RERANKER_URL" in line

    def test_a_dead_embedding_service_is_broken(self, index: Index) -> None:
        """Status 1, what it means for searches, and the other lines are still there."""
        index.embedder.down = True
        result = run("doctor")
        assert result.exit_code == 1
        [line] = [line for line in result.stdout.splitlines() if "embedding-service:" in line]
        assert line.startswith("broken")
        assert "EMBEDDING_URL" in line
        assert "reranker" in result.stdout

    def test_a_mismatch_is_broken(self, index: Index) -> None:
        """With the backend's sentence."""
        index.backend.mismatch = "made for another model"
        result = run("doctor")
        assert (result.exit_code, "made for another model" in result.stdout) == (1, True)

    @pytest.mark.parametrize("reason", [FallbackReason.MISCONFIGURED, FallbackReason.TRANSPORT])
    def test_a_reranker_that_does_not_answer_is_broken(self, index: Index, reason: FallbackReason) -> None:
        """With the reason's word and the settings to look at."""
        assert index.reranker is not None
        index.reranker.probe_script = failing(reason)
        result = run("doctor")
        assert result.exit_code == 1
        assert reason.value in result.stdout
        assert "RERANKER_URL" in result.stdout

    @pytest.mark.parametrize(
        ("facts", "word"),
        [
            ({"deadline_s": 27.0, "scored_chars_budget": 7500}, "RERANK_DEADLINE_S"),
            ({"deadline_s": 25.0, "scored_chars_budget": 5000}, "RERANK_SCORED_CHARS_BUDGET"),
        ],
    )
    def test_limits_that_do_not_fit_are_broken(self, index: Index, facts: dict[str, Any], word: str) -> None:
        """What is a warning at start is an error here, with both numbers."""
        assert index.reranker is not None
        index.reranker.facts = facts
        result = run("doctor")
        assert result.exit_code == 1
        [line] = [line for line in result.stdout.splitlines() if line.startswith("broken")]
        assert word in line

    def test_an_embedding_deadline_that_does_not_nest_is_broken(self, index: Index) -> None:
        """EMBEDDING_DEADLINE_S of the service must be below EMBEDDING_TIMEOUT_S."""
        index.embedder.facts["deadline_s"] = 5.0
        result = run("doctor")
        assert (result.exit_code, "EMBEDDING_DEADLINE_S" in result.stdout) == (1, True)

    def test_an_unknown_setting_is_a_warning(self, index: Index) -> None:
        """With the suggestion."""
        result = run("doctor", env={**DEVELOPMENT, "RERANKER_INTIAL_K": "9"})
        [line] = [line for line in result.stdout.splitlines() if line.startswith("warning")]
        assert "RERANKER_INITIAL_K" in line

    def test_wrong_settings_are_status_two(self, index: Index) -> None:
        """A sentence, not a line of findings."""
        result = run("doctor", env={})
        assert (result.exit_code, result.stdout) == (2, "")
        assert "AUTH_JWT_SECRET" in result.stderr

    def test_no_secret_is_printed(self, index: Index) -> None:
        """Neither where all is well nor where it is not."""
        index.embedder.down = True
        result = run("doctor", env={**DEVELOPMENT, "RERANKER_API_KEY": "very-secret-key"})
        assert SECRET not in result.output
        assert "very-secret-key" not in result.output


def test_help_lists_every_command() -> None:
    """`knowledge --help`."""
    text = run("--help").stdout
    for name in ("serve", "ingest", "search", "token", "doctor", "migrate", "seed", "explain", "canary"):
        assert name in text
