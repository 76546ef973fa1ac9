"""A fresh install works by itself; faults show with their reason; policies hold; upgrades and kills go unnoticed; nothing is left."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import httpx
import pytest

from tests.kubernetes.cluster import RELEASE, ROOT, Cluster, until
from tests.kubernetes.conftest import step
from tests.parts.browser import browser

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(3600)]

QUESTION = "Meine unteren Blätter werden gelb, die oberen sind noch grün. Was fehlt?"
LOAD_S = 600
COMPONENTS = ("gateway", "reranker", "embedding", "frontend")
KINDS = (
    "deployments,services,configmaps,secrets,serviceaccounts,jobs,pods,networkpolicies.networking.k8s.io,"
    "horizontalpodautoscalers.autoscaling,poddisruptionbudgets.policy"
)


def test_a_fresh_install_answers(cluster: Cluster) -> None:
    """Siblings started in any order, nobody restarted anything by hand, and the answer is reranked."""
    with step("a search through the Service"):
        answer = cluster.search(QUESTION)
    assert answer["ranking"] == "reranked"
    # The small reranker knows English: what it makes of the order is not this test's business.
    assert any("Stickstoff" in one["title"] and one["hybrid_rank"] <= 3 for one in answer["results"])
    for component in COMPONENTS:
        for pod in cluster.pods(component):
            assert [one["restartCount"] for one in pod["status"]["containerStatuses"]] == [0]


def test_helm_test_runs_the_doctor(cluster: Cluster) -> None:
    """Not one of its lines is broken, or the pod would have failed."""
    with step("helm test"):
        said = cluster.run("helm", "test", RELEASE, "--namespace", cluster.namespace, "--timeout", "5m")
    assert re.search(r"Phase:\s+Succeeded", said)


def _fallbacks(cluster: Cluster) -> list[str]:
    """The reasons of the traced searches that fell back within the last hour."""
    tags = json.dumps({"reranker_fallback": "true"})
    with cluster.forwarded_service("observability-dev", 16686) as url:
        parameters = {"service": "knowledge-gateway", "tags": tags, "lookback": "1h", "limit": "100"}
        found = httpx.get(f"{url}/api/traces", params=parameters, timeout=30, trust_env=False).raise_for_status().json()["data"] or []
    spans = [span for trace in found for span in trace["spans"]]
    return [tag["value"] for span in spans for tag in span["tags"] if tag["key"] == "reranker.fallback.reason"]


def test_the_pages_search(cluster: Cluster) -> None:
    """Through the frontend's Service, in a browser: a persona asks, and the order is the reranked one."""
    with step("a search in a browser"), cluster.forwarded("frontend", 8090) as url, browser(locale="en-GB") as context:
        page = context.new_page()
        page.goto(f"{url}/login")
        page.click("#persona-reader")
        page.wait_for_selector("#question")
        page.fill("#question", QUESTION)
        page.click("#send")
        page.get_by_text("reranked", exact=True).first.wait_for(timeout=60_000)
        assert page.get_by_text("Stickstoffmangel").count() > 0


def test_a_missing_reranker_shows_everywhere(cluster: Cluster) -> None:
    """Hybrid order in the answer, with the reason in the answer, the metric and the log."""
    reranker = f"deployment/{cluster.component('reranker')}"
    with step("the reranker scaled to nothing"):
        cluster.kubectl("scale", reranker, "--replicas=0")
        until(lambda: not cluster.pods("reranker"), "the reranker to be gone")
        until(lambda: cluster.search(QUESTION)["ranking"] == "hybrid", "a search in hybrid order")
        answer = cluster.search(QUESTION)
    assert answer["rerank"]["reason"] in ("transport", "circuit_open", "client_timeout")
    with cluster.forwarded("gateway", 8000) as url:
        assert "reranker_fallbacks_total{" in _metrics(url)
    logged = "".join(cluster.kubectl("logs", pod["metadata"]["name"]) for pod in cluster.pods("gateway"))
    assert "reranker.fallback" in logged
    with step("found in the trace store"):
        until(lambda: answer["rerank"]["reason"] in _fallbacks(cluster), "a trace of the fallback, with its reason", 60)
    with step("and back"):
        cluster.kubectl("scale", reranker, "--replicas=1")
        cluster.rolled_out("reranker")
        until(lambda: cluster.search(QUESTION)["ranking"] == "reranked", "a reranked search")


def test_a_wrong_key_is_latched_and_named(cluster: Cluster) -> None:
    """The reranker asks for a key that the gateway has not: searches go on, readiness says what is wrong, and the right key ends it."""
    reranker = f"deployment/{cluster.component('reranker')}"
    with step("a key that the gateway has not"):
        cluster.kubectl("set", "env", reranker, "RERANK_API_KEY=another-key")
        cluster.rolled_out("reranker")
        until(lambda: cluster.search(QUESTION)["rerank"]["reason"] == "misconfigured", "the reason misconfigured")
    with cluster.forwarded("gateway", 8000) as url:
        until(lambda: re.search(r"^reranker_misconfigured\S* 1", _metrics(url), re.MULTILINE) is not None, "the gauge", 90)
    with step("and the right one"):
        cluster.kubectl("set", "env", reranker, "RERANK_API_KEY-")
        cluster.rolled_out("reranker")
        until(lambda: cluster.search(QUESTION)["ranking"] == "reranked", "the latch to be gone")


def _metrics(url: str) -> str:
    return httpx.get(f"{url}/metrics", timeout=30, trust_env=False).text


CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 4).close()"


def _reaches(cluster: Cluster, component: str, host: str, port: int) -> bool:
    said = cluster.execute(component, "python3", "-c", CONNECT, host, str(port), status=None)
    assert not said or "timed out" in said or "TimeoutError" in said or "refused" in said, said
    return not said


def test_network_policies_hold(cluster: Cluster) -> None:
    """Connections that are needed succeed, all others fail: proven in both directions, and from another namespace."""
    gateway, reranker, embedding = (cluster.component(name) for name in ("gateway", "reranker", "embedding"))
    with step("allowed and forbidden connections"):
        for host, port in ((reranker, 8081), (embedding, 8080), ("opensearch-dev", 9200)):
            until(partial(_reaches, cluster, "gateway", host, port), f"gateway to {host}", 30)
        until(partial(_reaches, cluster, "frontend", gateway, 8000), "frontend to gateway", 30)
        for component, host, port in (
            ("reranker", "opensearch-dev", 9200),
            ("embedding", gateway, 8000),
            ("embedding", reranker, 8081),
            ("gateway", "kubernetes.default.svc", 443),
            ("frontend", "opensearch-dev", 9200),
            ("frontend", reranker, 8081),
        ):
            assert not _reaches(cluster, component, host, port), f"{component} reaches {host}"


@contextmanager
def load(cluster: Cluster) -> Iterator[None]:
    """Searches from a pod of the namespace all the while; not one of them may fail."""
    name = "load"
    cluster.kubectl("delete", "pod", name, "--ignore-not-found", "--wait=true")
    script = f"--from-file={ROOT / 'tests/kubernetes/load.py'}"
    made = cluster.kubectl("create", "configmap", name, script, "--dry-run=client", "--output=yaml")
    cluster.kubectl("apply", "--filename=-", given=made)
    image = cluster.pods("gateway")[0]["spec"]["containers"][0]["image"]
    variables = {"URL": f"http://{cluster.component('gateway')}:8000", "TOKEN": cluster.token(), "SECONDS": str(LOAD_S)}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": name,
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python3", "/load/load.py"],
                    "env": [{"name": key, "value": value} for key, value in variables.items()],
                    "volumeMounts": [{"name": name, "mountPath": "/load"}],
                }
            ],
            "volumes": [{"name": name, "configMap": {"name": name}}],
        },
    }
    cluster.kubectl("apply", "--filename=-", given=json.dumps(pod))
    until(lambda: "started" in cluster.kubectl("logs", name, status=None), "the load to start")
    time.sleep(3)
    yield
    cluster.kubectl("exec", name, "--", "python3", "-c", "open('/tmp/stop', 'w')")
    until(lambda: "{" in cluster.kubectl("logs", name), "the load to end", 90)
    outcomes = json.loads(cluster.kubectl("logs", name).splitlines()[-1])
    print(f" {outcomes}", end="", flush=True)
    assert sum(outcomes.values()) > 5
    assert set(outcomes) <= {"reranked", "partially_reranked", "hybrid"}, outcomes


def test_an_upgrade_and_its_rollback_go_unnoticed(cluster: Cluster) -> None:
    """Every component gets new pods while searches go on."""
    changed = [part for name in COMPONENTS for part in ("--set", f"{name}.podAnnotations.round=two")]
    where = ("--namespace", cluster.namespace, "--wait", "--timeout", "10m")
    with step("helm upgrade under load"), load(cluster):
        cluster.run("helm", "upgrade", RELEASE, "charts/knowledge-gateway", "--reuse-values", *changed, *where)
    with step("helm rollback under load"), load(cluster):
        cluster.run("helm", "rollback", RELEASE, *where)


def test_killed_pods_go_unnoticed(cluster: Cluster) -> None:
    """With two gateways, one may go at any time; a model service that goes is a degraded answer at most."""
    cluster.kubectl("scale", f"deployment/{cluster.component('gateway')}", "--replicas=2")
    cluster.rolled_out("gateway")
    with step("pods deleted under load"), load(cluster):
        for component in COMPONENTS:
            cluster.kubectl("delete", "pod", cluster.pods(component)[0]["metadata"]["name"], "--wait=true")
            cluster.rolled_out(component)


def test_memory_stays_within_its_limits(cluster: Cluster) -> None:
    """Nothing was killed for memory in all this."""
    for component in COMPONENTS:
        for pod in cluster.pods(component):
            for one in pod["status"]["containerStatuses"]:
                assert one.get("lastState", {}).get("terminated", {}).get("reason") != "OOMKilled"


def test_nothing_is_left(cluster: Cluster) -> None:
    """`helm uninstall` takes everything but volumes along. Last of all."""
    with step("helm uninstall"):
        cluster.run("helm", "uninstall", RELEASE, "--namespace", cluster.namespace, "--wait", "--timeout", "5m")
        until(lambda: not cluster.objects(KINDS, f"app.kubernetes.io/instance={RELEASE}"), "everything to be gone", 120)
