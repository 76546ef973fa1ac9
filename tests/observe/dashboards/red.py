"""Rate, errors and duration: is search served, and how fast?"""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from tests.observe.dashboards.panels import bars, board, figure, lines, percentiles, quantile, query, total, whole

REQUESTS = "http_server_request_duration_seconds"
SEARCH = 'http_route="/search"'
FAILED = 'http_response_status_code=~"5.."'
SERVED = 'service=~"$service"'
MODELS = "gen_ai_server_request_duration_seconds"


def red() -> Dashboard:
    """knowledge-red."""
    made = board("knowledge-red", "Knowledge: rate, errors, duration", "Is search served, and how fast?")
    searches = f"{REQUESTS}_count"
    fallback = f"({whole('reranker_fallbacks_total')} or vector(0)) / {whole(searches, SEARCH)}"
    errors = f"({whole(searches, SEARCH, FAILED)} or vector(0)) / {whole(searches, SEARCH)}"
    slow = f'histogram_quantile(0.95, sum by (le) (increase({REQUESTS}_bucket{{namespace="$namespace", {SEARCH}}}[$__range])))'
    stages = quantile(0.95, "knowledge_stage_duration_seconds", by="knowledge_stage")
    return (
        made.with_row(Row("Search"))
        .with_panel(figure("Searches", "short", whole(searches, SEARCH), "Requests to /search in the shown time."))
        .with_panel(figure("Errors", "percentunit", errors, "Searches answered with 5xx.", (0.01, "orange"), (0.05, "red")))
        .with_panel(figure("p95", "s", slow, "19 of 20 searches were faster.", (2, "orange"), (5, "red")))
        .with_panel(figure("Fallbacks", "percentunit", fallback, "Searches in hybrid order.", (0.05, "orange"), (0.1, "red")))
        .with_panel(
            lines("Requests by route", "reqps", "All services.", query(total(f"{REQUESTS}_count", SERVED, by="service, http_route")))
        )
        .with_panel(
            bars(
                "Errors by status",
                "reqps",
                "What was answered with 4xx or 5xx.",
                query(_statuses(), "{{service}} {{http_response_status_code}}"),
            )
        )
        .with_panel(lines("Duration of searches", "s", "As the caller sees it.", *percentiles(REQUESTS, SEARCH)))
        .with_panel(lines("p95 by stage", "s", "Which stage takes the time.", query(stages, "{{knowledge_stage}}", exemplar=True)))
        .with_row(Row("Answers"))
        .with_panel(
            bars(
                "Searches by outcome of reranking",
                "reqps",
                "Applied, partial, fallback, skipped, cancelled.",
                query(_outcomes(), "{{reranker_outcome}}"),
            )
        )
        .with_panel(bars("Answers that missed something", "reqps", "By what they missed.", query(_degraded(), "{{knowledge_degraded}}")))
        .with_panel(
            lines(
                "Embedding-service", "s", "Time of a request, measured there.", *percentiles(MODELS, 'gen_ai_operation_name="embeddings"')
            )
        )
        .with_panel(
            lines("Reranker-service", "s", "Time of a request, measured there.", *percentiles(MODELS, 'gen_ai_operation_name="rerank"'))
        )
    )


def _statuses() -> str:
    return total(f"{REQUESTS}_count", SERVED, 'http_response_status_code=~"[45].."', by="service, http_response_status_code")


def _outcomes() -> str:
    return total("knowledge_searches_total", by="reranker_outcome")


def _degraded() -> str:
    return total("knowledge_degraded_answers_total", by="knowledge_degraded")
