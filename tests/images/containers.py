"""The images under test, and containers of them as a careful cluster would run them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

RUN = f"kgtest-{uuid4().hex[:12]}"
"""What containers of this run are labelled with, so that only they are removed at the end."""
LABEL = "knowledge.test-run"
USER = "65532:65532"
TMP = "/tmp"  # noqa: S108 - inside the container
READY_S = 180.0
STOP_S = 30
"""What a cluster grants at least before it kills."""


@dataclass(frozen=True)
class Image:
    """One of the project's images.

    `added_mb` bounds what its layers add to the base image; `env` is the least with which it starts.
    """

    name: str
    port: int
    added_mb: int
    env: Mapping[str, str] = field(default_factory=dict)
    model: str = ""


IMAGES = (
    Image(
        "knowledge-gateway",
        8000,
        220,
        {"KNOWLEDGE_ENV": "development", "AUTH_JWT_SECRET": "x" * 32, "EMBEDDED_PATH": f"{TMP}/knowledge.db"},
    ),
    Image("knowledge-reranker", 8081, 340, model="ms-marco-minilm-l12-v2"),
    Image("knowledge-embedding", 8080, 450, model="multilingual-e5-small"),
    Image(
        "knowledge-frontend",
        8090,
        150,
        {"KNOWLEDGE_ENV": "development", "AUTH_JWT_SECRET": "x" * 32, "GATEWAY_URL": "http://127.0.0.1:8000"},
    ),
)


@dataclass
class Running:
    """A started container."""

    image: Image
    wrapped: Any
    url: str

    def status_of(self, path: str) -> int:
        """The HTTP status of a GET; 0 without an answer."""
        try:
            # A proxy that the environment names has no way to our loopback.
            return httpx.get(f"{self.url}{path}", timeout=5, trust_env=False).status_code
        except httpx.TransportError:
            return 0

    def post(self, path: str, body: Any) -> Any:
        """The answer to a POST of JSON."""
        return httpx.post(f"{self.url}{path}", json=body, timeout=60, trust_env=False).raise_for_status().json()

    def wait_for(self, path: str, statuses: tuple[int, ...] = (200,)) -> None:
        """Return once a GET answers so; fail with the container's last words if it ends before, or takes too long."""
        until = time.monotonic() + READY_S
        while self.status_of(path) not in statuses:
            self.wrapped.reload()
            assert self.wrapped.status in ("created", "running"), f"{self.image.name} ended:\n{self.last_words()}"
            assert time.monotonic() < until, f"{self.image.name} did not answer {path} within {READY_S:g} s:\n{self.last_words()}"
            time.sleep(0.2)

    def python(self, program: str) -> str:
        """What a program prints that the image's own Python runs in the container."""
        status, said = self.wrapped.exec_run(["python3", "-c", program])
        assert status == 0, said.decode()
        return str(said.decode())

    def last_words(self) -> str:
        """The end of the log."""
        return str(self.wrapped.logs(tail=20).decode(errors="replace"))


def prepared(image: Image, tag: str, **env: str) -> DockerContainer:
    """A container that is not started: read-only but for /tmp, no capabilities, its port on loopback."""
    from testcontainers.core.container import DockerContainer

    hardened: dict[str, Any] = {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges"]}
    container = DockerContainer(f"{image.name}:{tag}", env={**image.env, **env}, labels={LABEL: RUN}, **hardened)
    container.with_tmpfs_mount(TMP, "mode=1777")
    # The engine takes an address too, for which testcontainers has no parameter; without a port it chooses a free one.
    published: dict[str, Any] = container.ports
    published[f"{image.port}/tcp"] = ("127.0.0.1", None)
    return container


@contextmanager
def running(image: Image, tag: str, **env: str) -> Iterator[Running]:
    """A started container while the context lasts; it need not be ready."""
    with prepared(image, tag, **env) as container:
        yield Running(image, container.get_wrapped_container(), f"http://127.0.0.1:{container.get_exposed_port(image.port)}")
