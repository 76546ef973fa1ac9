"""The Grafana dashboards as code; `python -m tests.observe.dashboards` writes their JSON into the chart."""
