"""What the chart renders for monitoring, by Helm: the alerts' rules and the collector's configuration."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.parts import MissingPart
from tests.parts.toolchain.build import find

CHART = Path(__file__).parents[2] / "charts" / "knowledge-gateway"
NAMESPACE = "search"


def rules(values: dict[str, Any] | None = None) -> dict[str, Any]:
    """A file of rules for Prometheus, with other values than the chart's own if some are given."""
    wanted = {"metrics": {"prometheusRule": {"enabled": True, **(values or {})}}}
    spec: dict[str, Any] = _rendered("prometheusrule.yaml", wanted)["spec"]
    return spec


def collector_configuration(values: dict[str, Any]) -> str:
    """The collector's configuration."""
    data: dict[str, str] = _rendered("collector.yaml", {"telemetry": {"collector": {"enabled": True, "key": "config", **values}}})["data"]
    return data["config"]


def _rendered(template: str, values: dict[str, Any]) -> dict[str, Any]:
    command = [
        str(find("helm", os.environ)),
        "template",
        "kg",
        str(CHART),
        "--namespace",
        NAMESPACE,
        "--show-only",
        f"templates/{template}",
    ]
    command += ["--values", str(CHART / "ci" / "minimal-values.yaml"), "--values", "-", "--kube-version", "1.31.0"]
    command += ["--api-versions", "monitoring.coreos.com/v1/PrometheusRule"]
    done = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise MissingPart(f"Helm could not render {template}; it said:\n{done.stderr}")
    found: dict[str, Any] = yaml.safe_load(done.stdout)
    return found
