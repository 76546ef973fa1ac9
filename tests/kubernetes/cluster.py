"""A cluster that the tests may use, and the tools that talk to it."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jwt

from tests.parts import MissingPart
from tests.parts.toolchain.build import command_folder
from tests.parts.toolchain.catalogue import CLUSTER
from tests.parts.toolchain.docker import docker_config

ROOT = Path(__file__).parents[2]
RELEASE = "knowledge"
COMMAND_S = 1800
WAIT_S = 300.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """One namespace of the cluster, and the environment of every command that touches it."""

    namespace: str
    environment: Mapping[str, str]

    def run(self, *command: str, status: int | None = 0, given: str | None = None) -> str:
        """Run a command; what it printed. Any status will do where `status` is None."""
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, env=dict(self.environment), cwd=ROOT, timeout=COMMAND_S, check=False
        )
        if status is not None and done.returncode != status:
            raise AssertionError(f"{' '.join(command[:6])} ended with {done.returncode}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
        return done.stdout if done.returncode == 0 else done.stdout + done.stderr

    def kubectl(self, *arguments: str, status: int | None = 0, given: str | None = None) -> str:
        """`kubectl` in the namespace."""
        return self.run("kubectl", "--namespace", self.namespace, *arguments, status=status, given=given)

    def objects(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """Objects of a kind as the API has them."""
        chosen = ("--selector", selector) if selector else ()
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, *chosen, "--output", "json"))["items"]
        return found

    def component(self, name: str) -> str:
        """The name of a component's Deployment and Service."""
        return f"{RELEASE}-knowledge-gateway-{name}"

    def pods(self, component: str) -> list[dict[str, Any]]:
        """The pods of a component that are not on their way out."""
        found = self.objects("pods", f"app.kubernetes.io/component={component}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def rolled_out(self, component: str) -> None:
        """Wait until a component is as it should be."""
        self.kubectl("rollout", "status", f"deployment/{self.component(component)}", f"--timeout={int(WAIT_S)}s")

    def execute(self, component: str, *command: str, status: int | None = 0) -> str:
        """Run a command inside a component."""
        return self.kubectl("exec", f"deployment/{self.component(component)}", "--", *command, status=status)

    def token(self, *roles: str) -> str:
        """An identity that the release accepts."""
        (secret,) = [one for one in self.objects("secrets") if one["metadata"]["name"] == "knowledge-auth"]
        key = base64.b64decode(secret["data"]["jwt-secret"]).decode()
        claims = {"sub": "tester", "tenant": "default", "roles": list(roles or ("reader",)), "exp": int(time.time()) + 3600}
        return jwt.encode(claims, key, algorithm="HS256")

    @contextmanager
    def forwarded(self, component: str, port: int) -> Iterator[str]:
        """A component's Service on a port of the loopback."""
        with self.forwarded_service(self.component(component), port) as url:
            yield url

    @contextmanager
    def forwarded_service(self, name: str, port: int) -> Iterator[str]:
        """A Service of the namespace on a port of the loopback."""
        command = ["kubectl", "--namespace", self.namespace, "port-forward", f"service/{name}", f":{port}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=dict(self.environment))
        try:
            assert process.stdout is not None
            match = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
            assert match, "kubectl port-forward said nothing"
            yield f"http://127.0.0.1:{match[1]}"
        finally:
            process.terminate()
            process.communicate(timeout=30)

    def search(self, query: str, **more: Any) -> dict[str, Any]:
        """A search through the gateway's Service."""
        with self.forwarded("gateway", 8000) as url:
            headers = {"Authorization": f"Bearer {self.token()}"}
            answer = httpx.post(f"{url}/search", json={"query": query, **more}, headers=headers, timeout=60, trust_env=False)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


def until(check: Callable[[], bool], what: str, limit_s: float = WAIT_S) -> None:
    """Wait for something that the cluster does in its own time."""
    ends = time.monotonic() + limit_s
    while not check():
        assert time.monotonic() < ends, f"not within {limit_s:.0f} s: {what}"
        time.sleep(1)


def connect(namespace: str, env: Mapping[str, str]) -> Cluster:
    """The cluster that `E2E_KUBECONFIG` names; never one that is merely there.

    Raises MissingPart, with a sentence for each thing that is needed.
    """
    kubeconfig = env.get("E2E_KUBECONFIG", "")
    if not Path(kubeconfig).is_file():
        raise MissingPart("E2E_KUBECONFIG must name the kubeconfig of a cluster that tests may use: kind create cluster makes one.")
    if not env.get("E2E_LOAD_IMAGE"):
        raise MissingPart("E2E_LOAD_IMAGE must be a command that loads an image archive, such as 'kind load image-archive'.")
    if shutil.which("kubectl", path=env.get("PATH", "")) is None:
        raise MissingPart("kubectl is missing: https://kubernetes.io/docs/tasks/tools/")
    tools = command_folder(CLUSTER, env)
    own = {name: value for name, value in env.items() if not name.startswith(("SKAFFOLD_", "HELM_", "KUBE"))}
    own |= {
        "KUBECONFIG": kubeconfig,
        "PATH": f"{tools}{os.pathsep}{env['PATH']}",
        "SKAFFOLD_CONFIG": ".run/skaffold-config",
        "SKAFFOLD_UPDATE_CHECK": "false",
        "SKAFFOLD_INTERACTIVE": "false",
    }
    if config := docker_config(env):
        own["DOCKER_CONFIG"] = config
    context = env.get("E2E_CONTEXT") or _kubectl_config(own, "current-context").strip()
    own |= {"KUBECONFIG": str(_copy_of_context(own, context))}
    own |= {"SKAFFOLD_NAMESPACE": namespace, "SKAFFOLD_KUBE_CONTEXT": context, "HELM_KUBECONTEXT": context}
    return Cluster(namespace, own)


def _copy_of_context(env: Mapping[str, str], context: str) -> Path:
    """A kubeconfig that holds this context alone and makes it the current one: the user's own file stays as it is."""
    copy = ROOT / ".run" / "e2e-kubeconfig"
    copy.parent.mkdir(exist_ok=True)
    copy.touch(mode=0o600)
    copy.write_text(_kubectl_config(env, "view", "--raw", "--minify", "--flatten", f"--context={context}"))
    return copy


def _kubectl_config(env: Mapping[str, str], *arguments: str) -> str:
    return subprocess.run(["kubectl", "config", *arguments], env=dict(env), capture_output=True, text=True, check=True).stdout
