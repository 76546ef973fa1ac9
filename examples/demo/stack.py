"""The demo's services together: their settings, the corpus brought in, and the state that `make up` leaves behind."""

import hashlib
import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from examples.demo.services import PORTS, Service, choose_port, clean_environment, start, wait_ready

STATE = Path(".run").resolve()
DOTENV = Path(".env").resolve()
DOTENV_MARK = "# Written by the demo; remove this line to keep your own changes."
SOURCE = "demo"
ROLE = "reader"
MODEL = "multilingual-e5-small"
DOWN_S = 20.0


class DemoFailed(RuntimeError):
    """The demo cannot go on; the message says why and what to do."""


@dataclass(slots=True)
class Stack:
    """The running services and the settings that commands need to reach them."""

    services: dict[str, Service]
    settings: dict[str, str]

    @property
    def gateway_url(self) -> str:
        """Where to ask."""
        return self.services["knowledge-gateway"].url

    @property
    def pages_url(self) -> str:
        """Where people look."""
        return self.services["knowledge-frontend"].url

    def stop(self) -> None:
        """End all services, the pages first."""
        for service in reversed(self.services.values()):
            service.stop()

    def restart(self, name: str) -> None:
        """Start a stopped service again where it was."""
        old = self.services[name]
        port = int(old.url.rsplit(":", 1)[1])
        self.services[name] = start(name, old.env, STATE / "services", port=port)
        wait_ready(self.services[name])


def bring_up(
    corpus: Path, say: Callable[[str], None], *, detached: bool = False, more: Mapping[str, Mapping[str, str]] | None = None
) -> Stack:
    """Fetch the model, start everything, bring the corpus in.

    Args:
        corpus: a folder of documents.
        say: is told of each step.
        detached: whether the services outlive this process.
        more: further settings by the service's name.

    Raises:
        DemoFailed, ServiceFailed: with the reason.
    """
    if not corpus.is_dir():
        raise DemoFailed(f"CORPUS={corpus} is no folder; name one with YAML, JSONL, Markdown or text files.")
    say(f"models: {MODEL}")
    run(["knowledge-models", "fetch", MODEL], {})
    folder = STATE / "services"
    stack = Stack({}, _settings(corpus))

    def launch(name: str, settings: dict[str, str]) -> Service:
        settings = {**settings, **(more or {}).get(name, {})}
        service = start(name, settings, folder, port=choose_port(PORTS[name]), detached=detached)
        stack.services[name] = service
        say(f"{name} on {service.url}")
        return service

    try:
        embedding = launch("knowledge-embedding", {"EMBEDDING_MODEL": MODEL})
        reranker = launch("knowledge-reranker", {"RERANK_MODEL": MODEL})
        stack.settings |= {"EMBEDDING_URL": embedding.url, "RERANKER_URL": reranker.url}
        wait_ready(embedding)
        say(f"corpus: {corpus}")
        run(_ingest_command(corpus), stack.settings)
        wait_ready(reranker)
        gateway = launch("knowledge-gateway", stack.settings)
        stack.settings["GATEWAY_URL"] = gateway.url
        wait_ready(gateway)
        pages = ("KNOWLEDGE_ENV", "AUTH_JWT_SECRET", "GATEWAY_URL")
        wait_ready(launch("knowledge-frontend", {name: stack.settings[name] for name in pages}))
        _write_dotenv(stack.settings)
    except BaseException:  # Ctrl-C too: nothing that was started may stay behind
        stack.stop()
        raise
    return stack


def _settings(corpus: Path) -> dict[str, str]:
    digest = hashlib.sha256(str(corpus.resolve()).encode()).hexdigest()[:8]
    return {
        "KNOWLEDGE_ENV": "development",
        "AUTH_JWT_SECRET": _secret(),
        "EMBEDDED_PATH": str(STATE / f"corpus-{digest}" / "knowledge.db"),
    }


def _secret() -> str:
    """The demo's signing secret: made once, so that a token outlives a restart; readable by its owner only."""
    path = STATE / "jwt-secret"
    if not path.exists():
        STATE.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as sink:
            sink.write(secrets.token_hex(32))
    return path.read_text(encoding="ascii")


def _ingest_command(corpus: Path) -> list[str]:
    options = ["--source", SOURCE, "--allowed-roles", ROLE, "--prune", "--rejects", str(STATE / "rejects.jsonl")]
    return ["knowledge", "ingest", str(corpus.resolve()), *options]


def run(command: list[str], settings: dict[str, str]) -> None:
    """Run one of the product's commands in the foreground.

    Raises:
        DemoFailed: it failed; its own words were printed already.
    """
    STATE.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, env=clean_environment(settings), cwd=STATE, check=False)
    if done.returncode != 0:
        raise DemoFailed(f"`{' '.join(command[:2])}` failed with status {done.returncode}.")


def token(stack: Stack, roles: tuple[str, ...] = (ROLE,)) -> str:
    """A development token, minted by the product's own command."""
    command = ["knowledge", "token", "--ttl", "86400", *(part for role in roles for part in ("--role", role))]
    done = subprocess.run(command, env=clean_environment(stack.settings), cwd=STATE, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _write_dotenv(settings: dict[str, str]) -> None:
    """Settings for `knowledge search` in this folder; a person's own .env stays as it is."""
    if DOTENV.exists() and DOTENV_MARK not in DOTENV.read_text(encoding="utf-8"):
        return
    lines = [DOTENV_MARK, *(f"{name}={value}" for name, value in settings.items())]
    temporary = DOTENV.with_name(".env.new")
    temporary.touch(mode=0o600)
    temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    temporary.replace(DOTENV)


def remember(stack: Stack) -> None:
    """Note the processes that `make down` is to end."""
    pids = {name: service.process.pid for name, service in stack.services.items()}
    (STATE / "up.json").write_text(json.dumps(pids), encoding="utf-8")


def bring_down(say: Callable[[str], None]) -> None:
    """End what `make up` started, and nothing else: a pid that belongs to another command by now is left alone."""
    note = STATE / "up.json"
    pids: dict[str, int] = json.loads(note.read_text(encoding="utf-8")) if note.exists() else {}
    ours = {name: pid for name, pid in pids.items() if _is_service(pid, name)}
    for name, pid in reversed(ours.items()):
        os.kill(pid, signal.SIGTERM)
        say(f"stopping {name}")
    ends = time.monotonic() + DOWN_S
    while any(_is_service(pid, name) for name, pid in ours.items()) and time.monotonic() < ends:
        time.sleep(0.1)
    for name, pid in ours.items():
        if _is_service(pid, name):
            os.kill(pid, signal.SIGKILL)
    note.unlink(missing_ok=True)
    say("nothing was running" if not ours else "stopped")


def _is_service(pid: int, name: str) -> bool:
    """Whether `pid` runs the service's command; where the system cannot tell, whether it runs at all."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True
    return ("knowledge\0serve" if name == "knowledge-gateway" else name) in arguments
