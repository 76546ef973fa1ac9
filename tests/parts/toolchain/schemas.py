"""Schemas for kubeconform without a network: Kubernetes' own kinds from a Python package, custom kinds from their definitions."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.parts import MissingPart, say
from tests.parts.toolchain.build import folder, module_source
from tests.parts.toolchain.catalogue import KUBERNETES, OPERATOR, SCHEMAS

KINDS = ("servicemonitors", "prometheusrules")


def locations(env: Mapping[str, str]) -> list[str]:
    """What kubeconform takes as `-schema-location`, the schemas made first if they are not there."""
    home = folder(env) / "schemas"
    stamp = home / f".{'-'.join(KUBERNETES)}-{OPERATOR[1]}"
    if not stamp.exists():
        say("making the schemas of Kubernetes " + " and ".join(KUBERNETES) + " ...")
        _kubernetes(home)
        _custom(home, env)
        stamp.touch()
    return [
        f"{home}/{{{{.NormalizedKubernetesVersion}}}}-standalone{{{{.StrictSuffix}}}}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json",
        f"{home}/crd/{{{{.Group}}}}/{{{{.ResourceKind}}}}_{{{{.ResourceAPIVersion}}}}.json",
    ]


def _kubernetes(home: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="kgtest-schemas-") as place:
        # The project's environment has no pip: uv if it is on PATH, as it is in `make`, else a throw-away environment.
        if shutil.which("uv"):
            installer = ["uv", "pip", "install"]
        else:
            subprocess.run([sys.executable, "-m", "venv", f"{place}/venv"], check=True)
            installer = [f"{place}/venv/bin/python", "-m", "pip", "install"]
        command = [*installer, "--quiet", "--no-deps", "--target", f"{place}/package", SCHEMAS]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise MissingPart(f"{SCHEMAS} cannot be installed from the package registry; it said:\n{done.stderr[-2000:]}")
        source = Path(place) / "package" / "kubernetes_validate" / "kubernetes-json-schema"
        for version in KUBERNETES:
            for strict in ("", "-strict"):
                target = home / f"v{version}-standalone{strict}"
                target.mkdir(parents=True, exist_ok=True)
                for path in (source / f"v{version}-local{strict}").glob("*.json"):
                    (target / path.name).write_text(json.dumps(_portable(json.loads(path.read_text()))))


def _portable(node: Any) -> Any:
    """As kubeconform reads it: definitions under the older name, references inside the file."""
    if isinstance(node, list):
        return [_portable(item) for item in node]
    if not isinstance(node, dict):
        return node
    found: dict[str, Any] = {}
    for key, value in node.items():
        if key == "$ref" and isinstance(value, str):
            found[key] = value.replace("/api/", "").replace("#/$defs/", "#/definitions/")
        elif key != "$schema":
            found["definitions" if key == "$defs" else key] = _portable(value)
    return found


def _custom(home: Path, env: Mapping[str, str]) -> None:
    go = shutil.which("go", path=env.get("PATH", ""))
    if go is None:
        raise MissingPart("The schemas of ServiceMonitor and PrometheusRule come from a Go module: install Go 1.24 or newer.")
    module, version, inside = OPERATOR
    source = module_source(go, module, version, env) / inside
    for path in (one for kind in KINDS for one in source.glob(f"*{kind}.yaml")):
        definition = yaml.safe_load(path.read_text())["spec"]
        target = home / "crd" / definition["group"]
        target.mkdir(parents=True, exist_ok=True)
        for served in definition["versions"]:
            schema = _closed(served["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}
            (target / f"{definition['names']['kind'].lower()}_{served['name']}.json").write_text(json.dumps(schema))


def _closed(node: Any) -> Any:
    """A definition's schema that refuses unknown fields, as a cluster does when it is strict."""
    if isinstance(node, list):
        return [_closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    found = {key: _closed(value) for key, value in node.items()}
    if node.get("x-kubernetes-int-or-string"):
        found.pop("type", None)
        found["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if isinstance(node.get("properties"), dict) and node.get("type") == "object" and not node.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    return found
