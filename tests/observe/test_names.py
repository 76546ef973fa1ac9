"""Dashboards and alerts ask only for what the services say, and are what the code makes."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

import embedding.telemetry
import knowledge.telemetry
import reranker.telemetry
from tests.observe.dashboards.files import FOLDER, boards, panels, questions, texts
from tests.observe.dashboards.panels import JAEGER

ROOT = Path(__file__).parents[2]
RULES = ROOT / "charts" / "knowledge-gateway" / "files" / "rules.yaml"
TEMPLATE = ROOT / "charts" / "knowledge-gateway" / "templates" / "dashboards.yaml"
FOREIGN = {
    *("http_server_request_duration_seconds", "http_server_active_requests"),  # the HTTP instrumentation's
    *("process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"),  # the client library's
    *("up", "kube_job_status_failed"),  # of Prometheus itself, and of kube-state-metrics
}
WORDS = {"sum", "by", "le", "rate", "increase", "histogram_quantile", "max", "max_over_time", "count", "vector", "or", "unless", "offset"}
ROW = re.compile(r"^\| `([a-z_.]+)` \| .* \| `([a-z_]+)` \|$", re.MULTILINE)


def documented() -> dict[str, str]:
    """Prometheus' name of each metric on the page -> the name in the code."""
    page = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8")
    return {in_prometheus: name for name, in_prometheus in ROW.findall(page)}


def constants() -> set[str]:
    """Every name that a service has for something it tells."""
    modules = (knowledge.telemetry, reranker.telemetry, embedding.telemetry)
    return {value for module in modules for value in vars(module).values() if isinstance(value, str)}


def metrics_of(expr: str) -> set[str]:
    """The metrics in a query, without what a histogram adds to its name."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\bby \([^)]*\)|\"[^\"]*\"", " ", expr)
    names = set(re.findall(r"(?<![$\w])[a-z][a-z_]*[a-z]\b", bare)) - WORDS
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


def labels_of(expr: str) -> set[str]:
    """The labels that a query names."""
    named = {label for inside in re.findall(r"\{([^}]*)\}", expr) for label in re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", inside)}
    return named | {label for inside in re.findall(r"\bby \(([^)]*)\)", expr) for label in re.split(r",\s*", inside)}


def asked() -> list[str]:
    """Every query of dashboards and alerts."""
    return [one.expr for one in questions()] + [rule["expr"] for rule in yaml.safe_load(RULES.read_text())["rules"]]


def test_the_pages_names_are_those_of_the_code() -> None:
    """Every metric on the page is a constant, and Prometheus' name is made of it."""
    found = documented()
    assert set(found.values()) <= constants()
    for in_prometheus, name in found.items():
        assert in_prometheus.startswith(name.replace(".", "_")), name


def test_the_page_has_every_name_of_the_model_services() -> None:
    """As tests/integration holds it for the gateway."""
    page = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8")
    for module in (reranker.telemetry, embedding.telemetry):
        names = {value for name, value in vars(module).items() if name.isupper() and isinstance(value, str) and name != "SERVICE"}
        assert {name for name in names if f"`{name}`" not in page} == set()


def test_dashboards_and_alerts_ask_for_what_is_told() -> None:
    """Each metric in a query is on the page, which is held against the code."""
    for expr in asked():
        names = metrics_of(expr)
        assert names or "vector(" in expr, expr
        assert names <= set(documented()) | FOREIGN, expr


def test_labels_are_those_of_the_code() -> None:
    """Each label in a query is an attribute of the code, or one that Prometheus and the HTTP conventions bring."""
    own = {name.replace(".", "_") for name in constants()}
    brought = {"namespace", "service", "pod", "le", "job_name", "http_route", "http_response_status_code"}
    for expr in asked():
        assert labels_of(expr) <= own | brought, expr


def test_committed_dashboards_are_what_the_code_makes() -> None:
    """`make docs` writes them anew."""
    assert {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")} == texts()


def test_dashboards_are_stable_and_free_of_one_grafana() -> None:
    """Fixed uids, units on every panel, no data source of somebody's own."""
    found = boards()
    assert [board["uid"] for board in found] == ["knowledge-capacity", "knowledge-fallbacks", "knowledge-red"]
    for board in found:
        assert {"datasource", "namespace", "service", "jaeger", "tempo"} <= {one["name"] for one in board["templating"]["list"]}
        for panel in panels(board):
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert panel["description"], panel["title"]
            refs = [target["refId"] for target in panel["targets"]]
            assert len(set(refs)) == len(refs), panel["title"]


def test_a_percentile_leads_to_single_requests() -> None:
    """Exemplars are asked for wherever a duration's percentiles are drawn."""
    drawn = [
        target
        for board in boards()
        for panel in panels(board)
        for target in panel["targets"]
        if "duration_seconds_bucket" in target["expr"]
    ]
    over_time = [target for target in drawn if not target.get("instant")]
    assert over_time
    assert all(target["exemplar"] for target in over_time if "reranker_pair_duration" not in target["expr"])


def test_the_chart_puts_its_own_address_of_jaeger_in() -> None:
    """The template replaces exactly what the dashboards have."""
    assert f'"{JAEGER}"' in TEMPLATE.read_text()
    assert all(f'"{JAEGER}"' in text for text in texts().values())
