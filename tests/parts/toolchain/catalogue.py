"""Which tools, at which versions, from which Go modules."""

from __future__ import annotations

from dataclasses import dataclass

KUBERNETES = ("1.31.0", "1.37.0")
"""What manifests are checked against: the oldest that the chart admits, and the newest that has schemas."""

HELM_RENDERS_FOR = "34"
"""The minor version of Kubernetes that a Helm built here believes in; without it that is 1.20."""


COLLECTOR = "v0.161.0"
"""The newest release at which tail sampling builds with all that it needs; every part of the collector has the same."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A command and how to build it.

    `binary`: its name; `stamp`: the variable that holds the version, set by the linker; `says`: what prints the version.
    """

    binary: str
    module: str
    version: str
    package: str
    stamp: str = ""
    tags: str = ""
    says: tuple[str, ...] = ("version",)
    helm_major: int = 0
    embeds: tuple[tuple[str, str], ...] = ()
    """Folders of the module's sources that its own build copies elsewhere before it compiles, as (from, to)."""
    assembled: bool = False
    """Put together by the collector's own builder, out of the parts in collector.yaml beside this file."""


TOOLS = {
    tool.binary: tool
    for tool in (
        Tool("helm", "helm.sh/helm/v3", "v3.22.0", "./cmd/helm", "helm.sh/helm/v3/internal/version.version", helm_major=3),
        Tool("helm4", "helm.sh/helm/v4", "v4.3.2", "./cmd/helm", "helm.sh/helm/v4/internal/version.version", helm_major=4),
        Tool("untt", "github.com/helm-unittest/helm-unittest", "v1.1.2", "./cmd/helm-unittest", says=(), helm_major=3),
        Tool("kubeconform", "github.com/yannh/kubeconform", "v0.8.0", "./cmd/kubeconform", "main.version", says=("-v",)),
        Tool("kube-score", "github.com/zegl/kube-score", "v1.20.0", "./cmd/kube-score", "main.version"),
        Tool("helm-docs", "github.com/norwoodj/helm-docs", "v1.14.2", "./cmd/helm-docs", "main.version", says=("--version",)),
        Tool(
            "skaffold",
            "github.com/GoogleContainerTools/skaffold/v2",
            "v2.16.1",
            "./cmd/skaffold",
            "github.com/GoogleContainerTools/skaffold/v2/pkg/skaffold/version.version",
            tags="timetzdata osusergo netgo static_build release",
            embeds=(("docs-v2/content/en/schemas", "fs/assets/schemas_generated"),),
        ),
        Tool(
            "jaeger",
            "github.com/jaegertracing/jaeger",
            "v1.76.0",
            "./cmd/jaeger",
            "github.com/jaegertracing/jaeger/internal/version.latestVersion",
        ),
        Tool("builder", "go.opentelemetry.io/collector/cmd/builder", COLLECTOR, ".", says=()),
        Tool("otelcol-contrib", "", COLLECTOR, "", says=("--version",), assembled=True),
        Tool("docker-buildx", "github.com/docker/buildx", "v0.38.2", "./cmd/buildx", "github.com/docker/buildx/version.Version"),
    )
}

CHART = ("helm", "untt", "kubeconform", "kube-score", "helm-docs")
"""What `make chart-test` needs."""

CLUSTER = ("helm", "skaffold", "docker-buildx")
"""What `make e2e` and `make dev` need beside a cluster and an engine."""

OBSERVE = ("helm", "jaeger", "otelcol-contrib")
"""What `make observe` and `make test-observe` need; Helm renders the rules and the collector's configuration."""

OPERATOR = ("github.com/prometheus-operator/prometheus-operator", "v0.85.0", "example/prometheus-operator-crd")
"""Where the schemas of ServiceMonitor and PrometheusRule come from: module, version, folder."""

SCHEMAS = "kubernetes-validate==1.37.0"
"""The package that carries the schemas of Kubernetes' own kinds."""
