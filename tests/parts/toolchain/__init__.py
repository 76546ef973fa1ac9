"""The deployment tools that the chart tests and the cluster tests need: found on PATH at a fitting version, else built once with Go."""
