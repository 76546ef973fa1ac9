"""Real services, a scripted load with faults, a real Prometheus: every panel shows something, every alert fires and ends."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.observe.dashboards.files import Question, boards, questions
from tests.observe.incident import ALERTS, Incident, play
from tests.observe.stack import running_services
from tests.parts import chart, prometheus

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(480)]

REASONS = ["deadline", "overloaded", "client_timeout", "transport", "circuit_open", "misconfigured"]


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Incident]:
    """All of it, once; Prometheus still answers afterwards."""
    folder = tmp_path_factory.mktemp("kgtest-incident")
    rules = chart.rules({"evaluationInterval": "1s", "alerts": ALERTS})
    with running_services(folder) as services, prometheus.running(folder, rules) as server:
        server.scrape(services.targets)
        yield play(services, server)


def filled_in(expr: str, incident: Incident) -> str:
    """A panel's query with what Grafana would put in; without the zero that stands for no data at all."""
    values = {"$namespace": chart.NAMESPACE, "$service": ".+", "$__rate_interval": "5s", "$timeout": "27"}
    values["$__range"] = f"{math.ceil(incident.ended - incident.began)}s"
    for name, value in values.items():
        expr = expr.replace(name, value)
    return expr.replace(" or vector(0)", "")


def numbers(samples: list[dict[str, Any]]) -> list[float]:
    """All values of an answer that are numbers."""
    found = [float(value) for one in samples for _, value in (one.get("values") or [one["value"]])]
    return [value for value in found if not math.isnan(value)]


@pytest.mark.parametrize("question", questions(), ids=lambda one: f"{one.board}: {one.panel}: {one.expr}"[:120])
def test_every_panel_shows_something(incident: Incident, question: Question) -> None:
    """Each query of each dashboard is run on Prometheus."""
    expr = filled_in(question.expr, incident)
    server = incident.prometheus
    found = server.query(expr) if question.instant else server.query_range(expr, incident.began, incident.ended)
    assert numbers(found), expr


def test_every_choice_has_something_to_choose(incident: Incident) -> None:
    """The dashboards' variables that ask Prometheus find namespaces and services."""
    asked = 0
    for board in boards():
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                metric, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]).groups()  # type: ignore[union-attr]
                series = incident.prometheus.query(f"count by ({label}) ({filled_in(metric, incident)})")
                assert all(one["metric"].get(label) for one in series)
                assert series, variable["query"]
                asked += 1
    assert asked == 2 * len(boards())


def test_nothing_fires_while_all_is_well(incident: Incident) -> None:
    """Under load and without a fault."""
    assert incident.calm == set()


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_each_alert_fires_by_its_fault_and_ends_after_it(incident: Incident, alert: str) -> None:
    """On the chart's own rules, with short windows from its own values."""
    assert incident.fired[alert] is not None, f"{alert} did not fire"
    assert incident.over[alert] is not None, f"{alert} did not end"


def test_only_the_canary_is_left_to_a_cluster(incident: Incident) -> None:
    """No alert of the chart is forgotten here."""
    there = {one["alert"] for one in chart.rules()["groups"][0]["rules"]}
    assert there - set(ALERTS) == {"CanaryFailing"}


def test_the_reasons_are_those_of_the_faults(incident: Incident) -> None:
    """In the order in which the faults were made."""
    assert incident.reasons == REASONS
