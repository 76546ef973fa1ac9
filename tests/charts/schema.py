"""`python -m tests.charts.schema`: writes charts/knowledge-gateway/values.schema.json out of values.yaml and the services' settings.

Every level is closed, so that a mistyped name stops the install; open are only parts that Kubernetes itself checks.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml

from embedding.settings import EmbeddingSettings
from frontend.settings import GROUPS as FRONTEND_GROUPS
from knowledge.settings import GROUPS
from reranker.settings import RerankSettings
from servicekit.settings import SettingsGroup

CHART = Path("charts/knowledge-gateway")
SCHEMA = CHART / "values.schema.json"
Json = dict[str, Any]

SETTINGS: dict[str, tuple[type[SettingsGroup], ...]] = {
    "gateway": GROUPS,
    "reranker": (RerankSettings,),
    "embedding": (EmbeddingSettings,),
    "frontend": FRONTEND_GROUPS,
}
SET_BY_CHART = {
    "gateway": {
        *("SEARCH_BACKEND", "EMBEDDED_PATH", "OPENSEARCH_URL", "OPENSEARCH_INDEX", "OPENSEARCH_USERNAME", "OPENSEARCH_CA_FILE"),
        *("EMBEDDING_URL", "RERANKER_URL", "AUTH_JWKS_URL", "AUTH_ISSUER", "AUTH_AUDIENCE"),
    },
    "reranker": {"MODEL_CACHE_DIR"},
    "embedding": {"MODEL_CACHE_DIR"},
    "frontend": {"GATEWAY_URL", "FRONTEND_URL", "KNOWLEDGE_ENV", "AUTH_AUDIENCE", "AUTH_ISSUER"},
}
"""Settings that have a value of their own, or one right value in a container. Secrets pass the schema: a guard says where they belong."""

FREE_MAPS = {
    *("commonLabels", "commonAnnotations", "podAnnotations", "podLabels", "nodeSelector", "affinity", "resources", "annotations"),
    *("labels", "volume"),
}
STRING_LISTS = {"cidrs", "allowedRoles", "roles"}
CHOICES: dict[str, list[str]] = {
    "pullPolicy": ["Always", "IfNotPresent", "Never"],
    "type": ["ClusterIP", "NodePort", "LoadBalancer"],
    "source": ["image", "volume"],
    "accessMode": ["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany"],
    "whenMissing": ["fail", "skip"],
}
PROBE = ("initialDelaySeconds", "periodSeconds", "timeoutSeconds", "failureThreshold", "successThreshold")
SCALARS: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}


def schema() -> Json:
    """The schema as a value."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    root = _closed({name: _of(value, (name,)) for name, value in values.items()} | {"global": {"type": "object"}})
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart knowledge-gateway", **root}


def _closed(properties: Json) -> Json:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _of(value: Any, path: tuple[str, ...]) -> Json:
    name = path[-1]
    if name == "config":
        return _config(path[0])
    if name.endswith("Probe"):
        return _closed({one: {"type": "integer", "minimum": 0} for one in PROBE})
    if isinstance(value, dict):
        if name in FREE_MAPS and path != ("models", "volume"):
            return {"type": "object"}
        return _closed({inner: _of(one, (*path, inner)) for inner, one in value.items()})
    if isinstance(value, list):
        return {"type": "array", "items": {"type": "string"} if name in STRING_LISTS else {"type": ["object", "string"]}}
    chosen = name in CHOICES and path != ("ingest", "source")
    return {"enum": CHOICES[name]} if chosen else {"type": SCALARS[type(value)]}


def _config(component: str) -> Json:
    """Settings by name, each with the type that its service declares; lists may be written as lists."""
    properties: Json = {}
    for group in SETTINGS[component]:
        for field, declared in group.model_fields.items():
            if field.upper() not in SET_BY_CHART[component]:
                properties[field.upper()] = _setting(declared.annotation)
        properties |= {alias: properties[target] for alias, target in group.aliases.items()}
    return _closed(dict(sorted(properties.items())))


def _setting(annotation: Any) -> Json:
    arguments = [one for one in get_args(annotation) if one is not type(None)]
    if arguments and all(isinstance(one, str) for one in arguments):
        return {"enum": arguments}
    if get_origin(annotation) is tuple:
        return {"type": ["array", "string"], "items": {"type": "string"}}
    plain = arguments[0] if arguments else annotation
    return {"type": SCALARS.get(plain, "string")}


def text() -> str:
    """The file."""
    return json.dumps(schema(), indent=2, sort_keys=False) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(text())
    print(f"{SCHEMA} written")
