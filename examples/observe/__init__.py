"""Prometheus, Jaeger and a collector beside the demo's services: `make observe`."""
