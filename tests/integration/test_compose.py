"""compose.yaml: settings that exist, loopback only, hardened; and by Docker Compose itself where it is installed."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from embedding.settings import EmbeddingSettings
from frontend.settings import GROUPS as FRONTEND_GROUPS
from knowledge.settings import GROUPS
from reranker.settings import RerankSettings
from tests.parts.opensearch.container import IMAGE

FILE = Path("compose.yaml")
OWN = ("gateway", "reranker", "embedding", "frontend")
SETTINGS = {
    "gateway": set[str]().union(*(group.names() for group in GROUPS)),
    "reranker": RerankSettings.names(),
    "embedding": EmbeddingSettings.names(),
    "frontend": set[str]().union(*(group.names() for group in FRONTEND_GROUPS)),
}


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    """The services by name, merges resolved."""
    parsed: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]
    return parsed


@pytest.mark.parametrize("name", OWN)
def test_every_setting_exists(services: dict[str, dict[str, Any]], name: str) -> None:
    """A mistyped name would be a warning in a log that nobody reads."""
    assert set(services[name].get("environment", {})) <= SETTINGS[name]


@pytest.mark.parametrize("name", OWN)
def test_own_services_are_hardened(services: dict[str, dict[str, Any]], name: str) -> None:
    """As the chart does it: nothing can be written but /tmp, no capability, no way to gain one."""
    service = services[name]
    assert (service["read_only"], service["tmpfs"], service["cap_drop"]) == (True, ["/tmp"], ["ALL"])  # noqa: S108 - in the container
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["build"]["target"] == name


@pytest.mark.parametrize("name", OWN)
def test_health_is_asked_by_what_the_image_has(services: dict[str, dict[str, Any]], name: str) -> None:
    """Python, at the port that is published; the program itself must at least compile."""
    check = services[name]["healthcheck"]["test"]
    assert check[:3] == ["CMD", "python3", "-c"]
    compile(check[3], "healthcheck", "exec")
    (published,) = services[name]["ports"]
    assert f"127.0.0.1:{published.rsplit(':', 1)[1]}/ready" in check[3]


def test_ports_are_published_on_loopback_only(services: dict[str, dict[str, Any]]) -> None:
    """A development secret and a node without security are nothing for a network."""
    assert all(port.startswith("127.0.0.1:") for service in services.values() for port in service.get("ports", ()))
    assert "ports" not in services["opensearch"]


def test_the_secret_has_no_default(services: dict[str, dict[str, Any]]) -> None:
    """Without one, Compose stops with a sentence that says how to make one."""
    assert re.fullmatch(r"\$\{AUTH_JWT_SECRET:\?Set .*openssl rand -hex 32\}", services["gateway"]["environment"]["AUTH_JWT_SECRET"])


def test_the_node_is_the_one_that_tests_take(services: dict[str, dict[str, Any]]) -> None:
    """One pin."""
    assert services["opensearch"]["image"] == IMAGE


@pytest.mark.images
def test_compose_accepts_the_file() -> None:
    """`docker compose config` with every profile, and its refusal without a secret. Part of `make image-test`, which needs an engine."""
    if shutil.which("docker") is None or subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode:
        pytest.fail("Docker Compose is missing: https://docs.docker.com/compose/install/ says how to get it")
    command = ["docker", "compose", "--env-file", "/dev/null", "--file", str(FILE), "--profile", "*", "config", "--quiet"]
    for secret, accepted in (("x" * 32, True), ("", False)):
        env = {**os.environ, "AUTH_JWT_SECRET": secret}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) is accepted, done.stderr
