"""Tests of the charts with real Helm: `make chart-test`."""
