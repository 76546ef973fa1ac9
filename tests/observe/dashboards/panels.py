"""What all dashboards are made of: queries, panels, variables, and the ways from a panel to the traces behind it."""

from __future__ import annotations

import json
from urllib.parse import quote

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.models import common as styles
from grafana_foundation_sdk.models import dashboard as models

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
JAEGER = "http://localhost:16686"
"""Where Jaeger is unless somebody says otherwise; the chart puts its own value in this place."""
GATEWAY = "knowledge-gateway"
FULL, HALF, QUARTER = 24, 12, 6


def rate(metric: str, *matchers: str) -> str:
    """Per second, of every series."""
    return f"rate({metric}{selector(*matchers)}[$__rate_interval])"


def total(metric: str, *matchers: str, by: str = "") -> str:
    """Per second, summed up, in one line for each value of the label `by`."""
    return f"sum{f' by ({by}) ' if by else ''}({rate(metric, *matchers)})"


def whole(metric: str, *matchers: str) -> str:
    """How much came together in the time that the dashboard shows."""
    return f"sum(increase({metric}{selector(*matchers)}[$__range]))"


def quantile(share: float, histogram: str, *matchers: str, by: str = "") -> str:
    """The value below which `share` of the observations of a histogram lie."""
    return f"histogram_quantile({share}, {total(f'{histogram}_bucket', *matchers, by=f'le, {by}' if by else 'le')})"


def selector(*matchers: str) -> str:
    """Only what runs in the chosen namespace."""
    return "{" + ", ".join(('namespace="$namespace"', *matchers)) + "}"


def query(expr: str, legend: str = "", *, exemplar: bool = False) -> prometheus.Dataquery:
    """A line, or several, over time."""
    return prometheus.Dataquery().expr(expr).legend_format(legend or "__auto").range().exemplar(exemplar)


def percentiles(histogram: str, *matchers: str) -> list[prometheus.Dataquery]:
    """p50, p95 and p99, with a way to single requests where exemplars are stored."""
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return [query(quantile(share, histogram, *matchers), name, exemplar=True) for name, share in shares.items()]


def figure(title: str, unit: str, expr: str, says: str, *steps: tuple[float, str]) -> stat.Panel:
    """One number for the time that the dashboard shows; `steps` colour it from a value on."""
    colours = [models.Threshold(None, "green"), *(models.Threshold(value, colour) for value, colour in steps)]
    thresholds = dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(colours)
    panel = stat.Panel().title(title).description(says).datasource(SOURCE).unit(unit).thresholds(thresholds)
    return panel.with_target(prometheus.Dataquery().expr(expr).instant().ref_id("A")).height(4).span(QUARTER)


def lines(title: str, unit: str, says: str, *queries: prometheus.Dataquery) -> timeseries.Panel:
    """Lines over time."""
    panel = timeseries.Panel().title(title).description(says).datasource(SOURCE).unit(unit).min(0).fill_opacity(8)
    for letter, one in zip("ABCDEFGH", queries, strict=False):
        panel = panel.with_target(one.ref_id(letter))
    return panel.height(8).span(HALF)


def bars(title: str, unit: str, says: str, *queries: prometheus.Dataquery) -> timeseries.Panel:
    """Stacked bars over time."""
    stacked = common.StackingConfig().mode(styles.StackingMode.NORMAL).group("A")
    return lines(title, unit, says, *queries).draw_style(styles.GraphDrawStyle.BARS).fill_opacity(80).stacking(stacked)


def limit(panel: timeseries.Panel, name: str) -> timeseries.Panel:
    """Draw the line `name` as a limit: dashed and red."""
    dashes = {"fill": "dash", "dash": [10, 10]}
    red = {"mode": "fixed", "fixedColor": "red"}
    properties = [("custom.lineStyle", dashes), ("color", red), ("custom.fillOpacity", 0)]
    return panel.override_by_name(name, [models.DynamicConfigValue(key, value) for key, value in properties])


def traces_by(panel: timeseries.Panel, attribute: str, label: str) -> timeseries.Panel:
    """Links from a bar to the traces in the shown time whose span `attribute` is the value of the bar's `label`."""
    value = f"${{__field.labels.{label}}}"
    # Grafana puts the value in after the link is written, so its own variables stay as they are.
    tags = quote(json.dumps({attribute: value}, separators=(",", ":")), safe="${}_.")
    jaeger = f"${{jaeger}}/search?service={GATEWAY}&tags={tags}&start=${{__from}}000&end=${{__to}}000&limit=100"
    asked = f'{{ resource.service.name = "{GATEWAY}" && span.{attribute} = "{value}" }}'
    pane = {
        "datasource": "${tempo}",
        "queries": [{"refId": "A", "datasource": {"type": "tempo", "uid": "${tempo}"}, "queryType": "traceql", "query": asked}],
        "range": {"from": "${__from}", "to": "${__to}"},
    }
    tempo = "/explore?schemaVersion=1&panes=" + quote(json.dumps({"traces": pane}, separators=(",", ":")), safe="${}_.")
    named = {"Traces in Jaeger": jaeger, "Traces in Tempo": tempo}
    return panel.data_links([dashboard.DashboardLink(title).url(url).target_blank(True) for title, url in named.items()])


def board(uid: str, title: str, says: str) -> dashboard.Dashboard:
    """An empty dashboard with the variables that all of them have."""
    refresh = models.VariableRefresh.ON_TIME_RANGE_CHANGED
    namespace = dashboard.QueryVariable("namespace").query("label_values(knowledge_searches_total, namespace)")
    services = 'label_values(process_cpu_seconds_total{namespace="$namespace", service=~".*(gateway|reranker|embedding).*"}, service)'
    service = dashboard.QueryVariable("service").query(services).multi(True).include_all(True).all_value(".+")
    made = dashboard.Dashboard(title).uid(uid).description(says).tags(["knowledge"]).refresh("30s").time("now-1h", "now").editable()
    made = made.link(dashboard.DashboardLink("Knowledge").type(models.DashboardLinkType.DASHBOARDS).tags(["knowledge"]).keep_time(True))
    return (
        made.with_variable(dashboard.DatasourceVariable("datasource").label("Metrics").type("prometheus"))
        .with_variable(namespace.label("Namespace").datasource(SOURCE).refresh(refresh))
        .with_variable(service.label("Service").datasource(SOURCE).refresh(refresh))
        .with_variable(dashboard.TextBoxVariable("jaeger").label("Jaeger").default_value(JAEGER))
        .with_variable(dashboard.DatasourceVariable("tempo").label("Tempo").type("tempo"))
    )
