"""Every name that the frontend gives to telemetry. It has the HTTP server's own metrics and spans, and no others."""

SERVICE = "knowledge-frontend"
DISTRIBUTION = "knowledge-frontend"
