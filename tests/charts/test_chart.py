"""The chart by the tools of its field: Helm's lint, its unit tests, the schemas of two Kubernetes versions, kube-score, helm-docs."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.charts import schema
from tests.charts.conftest import ROOT, Run
from tests.parts.toolchain.catalogue import KUBERNETES
from tests.parts.toolchain.schemas import locations

pytestmark = pytest.mark.chart

CHARTS = sorted(path.parent for path in ROOT.glob("charts/*/Chart.yaml"))
VARIANTS = sorted(ROOT.glob("charts/*/ci/*-values.yaml"))
GATEWAY = ROOT / schema.CHART
CRDS = ("monitoring.coreos.com/v1/ServiceMonitor", "monitoring.coreos.com/v1/PrometheusRule")

NOT_SCORED = {
    "container-image-pull-policy": "tags are versions and never move; `image.pullPolicy` is there for those whose do",
    "pod-networkpolicy": "Jobs without a port have a policy of their own; kube-score wants one for ingress too",
    "pod-probes": "of Jobs and of the test pod there is nothing to probe",
}
"""Checks of kube-score that are passed over, each with its reason. CPU limits too: they throttle a search that an idle core could serve."""

MAX_REQUESTED_CPU = 1.2


def rendered(helm: Run, variant: Path, kubernetes: str = KUBERNETES[0]) -> str:
    """The manifests of one set of values."""
    crds = [part for crd in CRDS for part in ("--api-versions", crd)]
    chart = str(variant.parents[1].relative_to(ROOT))
    return helm("template", "kg", chart, "--namespace", "search", "--values", str(variant), "--kube-version", kubernetes, *crds)


def identity(path: Path) -> str:
    """What pytest calls a case."""
    return f"{path.parents[1].name}-{path.stem}" if path.suffix else path.name


@pytest.mark.parametrize("variant", VARIANTS, ids=identity)
def test_lint(helm: Run, variant: Path) -> None:
    """Strictly: a warning is an error."""
    helm("lint", "--strict", str(variant.parents[1]), "--values", str(variant), "--kube-version", KUBERNETES[0])


@pytest.mark.parametrize("chart", CHARTS, ids=identity)
def test_units(tools: dict[str, str], chart: Path) -> None:
    """helm-unittest: each template, guard and switch."""
    done = subprocess.run(["untt", "--file", "tests/*_test.yaml", str(chart)], capture_output=True, text=True, env=tools, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kubernetes", KUBERNETES)
@pytest.mark.parametrize("variant", VARIANTS, ids=identity)
def test_manifests_are_what_kubernetes_takes(helm: Run, tools: dict[str, str], variant: Path, kubernetes: str) -> None:
    """kubeconform, strictly, with the schemas of the oldest and of the newest version, custom kinds included."""
    places = [part for place in locations(os.environ) for part in ("-schema-location", place)]
    command = ["kubeconform", "-strict", "-summary", "-kubernetes-version", kubernetes, *places]
    manifests = rendered(helm, variant, kubernetes)
    done = subprocess.run(command, input=manifests, capture_output=True, text=True, env=tools, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Skipped: 0" in done.stdout


@pytest.mark.parametrize("variant", VARIANTS, ids=identity)
def test_score(helm: Run, tools: dict[str, str], variant: Path) -> None:
    """kube-score finds nothing critical but what has a reason here."""
    passed_over = [part for check in NOT_SCORED for part in ("--ignore-test", check)]
    command = ["kube-score", "score", "--ignore-container-cpu-limit", *passed_over, "-"]
    done = subprocess.run(command, input=rendered(helm, variant), capture_output=True, text=True, env=tools, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("chart", CHARTS, ids=identity)
def test_readme_is_what_helm_docs_writes(tools: dict[str, str], chart: Path) -> None:
    """`make docs` writes it anew."""
    command = ["helm-docs", "--chart-search-root", str(chart), "--dry-run", "--log-level", "error"]
    done = subprocess.run(command, capture_output=True, text=True, env=tools, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == (chart / "README.md").read_text().strip()


def test_schema_is_what_the_settings_say() -> None:
    """`make docs` writes it anew."""
    assert (ROOT / schema.SCHEMA).read_text() == schema.text()


def leaves(values: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all values that are no maps."""
    if isinstance(values, dict) and values:
        for name, value in values.items():
            yield from leaves(value, (*path, name))
    else:
        yield path


def test_every_value_is_used() -> None:
    """A value that no template reads would be a promise that nobody keeps."""
    templates = "\n".join(path.read_text() for path in sorted((GATEWAY / "templates").rglob("*")) if path.is_file())
    passed_whole = {"startupProbe", "readinessProbe", "livenessProbe", "resources"}
    unused = []
    for path in leaves(yaml.safe_load((GATEWAY / "values.yaml").read_text())):
        name = next((part for part in path if part in passed_whole), path[-1])
        if path[:-1] and path[-2] == "topologySpreadConstraints":
            name = path[-2]
        if not re.search(rf"\.{name}\b|\bdig \"{name}\"", templates):
            unused.append(".".join(path))
    assert unused == []


@pytest.mark.parametrize("component", sorted(schema.SETTINGS))
def test_every_setting_is_reachable(component: str) -> None:
    """By `config`, by a value of its own, or, where it is secret, by reference."""
    properties = schema.schema()["properties"][component]["properties"]["config"]["properties"]
    templates = "\n".join(path.read_text() for path in sorted((GATEWAY / "templates").rglob("*")) if path.is_file())
    names = {name for group in schema.SETTINGS[component] for name in group.names() if not name.endswith("_FILE") or name in properties}
    unreachable = {name for name in names if name not in properties and name not in templates} - {"EMBEDDED_PATH"}
    assert unreachable == set()


def test_the_small_cluster_is_small(helm: Run) -> None:
    """The requests of all pods with a surge of one each, and OpenSearch beside them."""
    total = 0.0
    for variant in VARIANTS:
        if variant.stem == "e2e-values":
            for manifest in yaml.safe_load_all(rendered(helm, variant)):
                if manifest and manifest["kind"] in ("Deployment", "StatefulSet"):
                    pod = manifest["spec"]["template"]["spec"]
                    surge = 1 if manifest["kind"] == "Deployment" else 0
                    requested = sum(cpus(one["resources"]["requests"]["cpu"]) for one in pod["containers"])
                    total += (manifest["spec"]["replicas"] + surge) * requested
    assert 0 < total <= MAX_REQUESTED_CPU


def cpus(quantity: str) -> float:
    """`250m` is a quarter."""
    return float(quantity.removesuffix("m")) / 1000 if str(quantity).endswith("m") else float(quantity)


@pytest.mark.parametrize("change", ["ingest.resources.limits.memory=2Gi", "gateway.image.tag=other", "imagePullSecrets[0].name=pull"])
def test_a_job_whose_pods_change_is_another_job(helm: Run, change: str) -> None:
    """Kubernetes refuses to change the pods of a Job, so an upgrade that did would fail."""
    values = str(GATEWAY / "ci" / "dev-values.yaml")
    names = set()
    for changed in ((), ("--set", change)):
        manifests = helm("template", "kg", str(schema.CHART), "--values", values, "--kube-version", KUBERNETES[0], *changed)
        names |= {one["metadata"]["name"] for one in yaml.safe_load_all(manifests) if one and one["kind"] == "Job"}
    assert len(names) == 2
