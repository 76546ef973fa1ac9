"""A node with the security plugin: TLS on HTTP, users and roles that a test puts there, and certificates to call it with."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx

from tests.parts import MissingPart
from tests.parts.opensearch.certificates import Authority, Pair
from tests.parts.opensearch.install import SECURED, find_maven, install, installed
from tests.parts.opensearch.java import find_java
from tests.parts.opensearch.launch import Jars, Jvm
from tests.parts.opensearch.node import WAIT_S, NodeError, Setting, common_settings, free_ports, supervised, tail

__all__ = ["SecuredNode", "find_oldest", "secured_node"]

# Java 24 took out the security manager that 2.x installs.
_MAJORS: Final = range(17, 24)
_MISSING: Final = "No OpenSearch 2.19 for the tests: install a Java from 17 to 23 (Debian: openjdk-17-jre-headless) and Maven."
_UNCHANGED: Final = ("action_groups.yml", "allowlist.yml", "audit.yml", "nodes_dn.yml", "tenants.yml")
_DOMAINS: Final[Mapping[str, Any]] = {
    # Without a `username_attribute` the whole distinguished name is the user.
    "certificate": {"order": 0, "http_authenticator": {"type": "clientcert", "challenge": False}, "backend": "noop"},
    "password": {"order": 1, "http_authenticator": {"type": "basic", "challenge": True}, "backend": "intern"},
}


@dataclass(frozen=True)
class SecuredNode:
    """A node that answers whoever it knows."""

    url: str
    authority: Authority
    admin: Pair
    log: Path

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Speak to the node as its administrator, whom no role holds back; raise if it refuses."""
        context = ssl.create_default_context(cafile=self.authority.certificate)
        context.load_cert_chain(self.admin.certificate, self.admin.key)
        with httpx.Client(verify=context, trust_env=False, timeout=30) as client:
            answer = client.request(method, f"{self.url}/{path}", json=body)
        answer.raise_for_status()
        return answer.json()

    def put(self, kind: str, name: str, body: object) -> None:
        """Have a user (`internalusers`), role (`roles`) or mapping (`rolesmapping`) be like this."""
        self.call("PUT", f"_plugins/_security/api/{kind}/{name}", body)


def find_oldest(env: Mapping[str, str]) -> Jars:
    """Return how to run a node of the oldest supported version, installed first if need be; raise MissingPart if this machine cannot.

    Its settings turn the security plugin off.
    """
    java = find_java(env, majors=_MAJORS)
    if java is None or (installed(env, SECURED) is None and find_maven(env) is None):
        raise MissingPart(_MISSING)
    return Jars(
        install(env, java, SECURED),
        java,
        f"jars of OpenSearch {SECURED.version}",
        flags=("-Djava.security.manager=allow",),
        settings={"plugins.security.disabled": True},
    )


@contextmanager
def secured_node(env: Mapping[str, str] | None = None, wait_s: float = WAIT_S) -> Iterator[SecuredNode]:
    """Run a node in a fresh folder while the context lasts; it ends, and the folder goes, even if we are killed."""
    environment = os.environ if env is None else env
    launch = find_oldest(environment)
    http_port, transport_port = free_ports(2)
    with tempfile.TemporaryDirectory(prefix="kgtest-opensearch-", ignore_cleanup_errors=True) as folder:
        state = Path(folder)
        # The plugin reads certificates from the folder of settings only.
        (state / "config").mkdir()
        authority = Authority(state / "config")
        server, admin = authority.issue("node"), authority.issue("admin")
        _write_configuration(launch.home / "plugins/opensearch-security/config", state / "config/opensearch-security")
        node = SecuredNode(f"https://127.0.0.1:{http_port}", authority, admin, state / "logs/node.log")
        settings = common_settings(f"kgtest-{uuid4().hex[:12]}", state, http_port, transport_port) | _security(server, admin)
        with supervised(launch, state, Jvm(), settings, environment) as (alive, log):
            _wait_until_ready(node, alive, log, wait_s)
            yield node


def _security(server: Pair, admin: Pair) -> dict[str, Setting]:
    layer: dict[str, Setting] = {
        "pemcert_filepath": server.certificate.name,
        "pemkey_filepath": server.key.name,
        "pemtrustedcas_filepath": "ca.pem",
    }
    return {
        **{f"plugins.security.ssl.{where}.{name}": value for where in ("transport", "http") for name, value in layer.items()},
        "plugins.security.ssl.http.enabled": True,
        "plugins.security.ssl.http.clientauth_mode": "OPTIONAL",
        "plugins.security.nodes_dn": [server.name],
        "plugins.security.authcz.admin_dn": [admin.name],
        "plugins.security.allow_default_init_securityindex": True,
    }


def _write_configuration(shipped: Path, folder: Path) -> None:
    """Take over what the plugin brings along, except its demonstration users and their roles."""
    folder.mkdir()
    for name in _UNCHANGED:
        shutil.copyfile(shipped / name, folder / name)
    domains = {
        name: {
            "http_enabled": True,
            "order": domain["order"],
            "http_authenticator": domain["http_authenticator"],
            "authentication_backend": {"type": domain["backend"]},
        }
        for name, domain in _DOMAINS.items()
    }
    written = {
        "config": {"config": {"dynamic": {"authc": domains}}},
        "internal_users": {},
        "roles": {},
        "roles_mapping": {},
    }
    for name, content in written.items():
        meta = {"_meta": {"type": name.replace("_", ""), "config_version": 2}}
        # JSON is YAML.
        (folder / f"{name}.yml").write_text(json.dumps(meta | content))


def _wait_until_ready(node: SecuredNode, alive: Callable[[], bool], log: Path, wait_s: float) -> None:
    """Return once the node knows its users; raise NodeError if it ends before, or takes longer than `wait_s`."""
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        try:
            node.call("GET", "_cluster/health?wait_for_status=yellow&timeout=2s")
            node.call("GET", "_plugins/_security/api/roles")
        except httpx.HTTPError:
            if not alive():
                raise NodeError(f"the OpenSearch node ended while it started; its last words:\n{tail(log)}") from None
            time.sleep(0.25)
        else:
            return
    raise NodeError(f"no secured OpenSearch node served {node.url} within {wait_s:.0f} s; its last words:\n{tail(log)}")
