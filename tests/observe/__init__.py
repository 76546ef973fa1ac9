"""Dashboards, alerts and traces against real Prometheus, Jaeger and collector."""
