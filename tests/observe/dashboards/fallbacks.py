"""Fallbacks: does reranking hold, why not, and is it worth its price?"""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row, TextBoxVariable

from tests.observe.dashboards.panels import bars, board, figure, limit, lines, percentiles, quantile, query, total, traces_by, whole

ASKED = 'reranker_outcome=~"applied|partial|fallback"'
UNMOVED = 'le=~"0|0.0"'
RERANK = "reranker_duration_seconds"


def fallbacks() -> Dashboard:
    """knowledge-fallbacks."""
    waits = TextBoxVariable("timeout").label("Reranker time-out in seconds").default_value("27")
    made = board(
        "knowledge-fallbacks", "Knowledge: reranking and its fallbacks", "Does reranking hold, why not, and is it worth its price?"
    )
    asked = whole("knowledge_searches_total", ASKED)
    fallback = f"({whole('reranker_fallbacks_total')} or vector(0)) / {asked}"
    partial = f"({whole('reranker_partials_total')} or vector(0)) / {asked}"
    churn = f"1 - {whole('knowledge_rerank_moved_bucket', UNMOVED)} / {whole('knowledge_rerank_moved_count')}"
    refused = 'max(reranker_misconfigured{namespace="$namespace"}) or vector(0)'
    by_reason = query(total("reranker_fallbacks_total", by="reranker_fallback_reason"), "{{reranker_fallback_reason}}")
    partials = query(total("reranker_partials_total", by="reranker_partial_reason"), "{{reranker_partial_reason}}")
    reasons = "Click a bar for its traces: the same reason, in the shown time."
    timeout = query("vector($timeout)", "time-out")
    return (
        made.with_variable(waits)
        .with_row(Row("Does it hold?"))
        .with_panel(figure("Fallbacks", "percentunit", fallback, "Of the searches that wanted reranking.", (0.05, "orange"), (0.1, "red")))
        .with_panel(figure("Partial", "percentunit", partial, "Of the same: a part of the head was scored.", (0.1, "orange"), (0.2, "red")))
        .with_panel(figure("Misconfigured", "bool_yes_no", refused, "The provider refuses the configuration.", (1, "red")))
        .with_panel(figure("Changed top 5", "percentunit", churn, "Reranked searches whose five best are not what they were before."))
        .with_panel(
            traces_by(bars("Fallbacks by reason", "reqps", reasons, by_reason), "reranker.fallback.reason", "reranker_fallback_reason")
        )
        .with_panel(
            traces_by(bars("Partial answers by reason", "reqps", reasons, partials), "reranker.partial.reason", "reranker_partial_reason")
        )
        .with_panel(
            limit(
                lines("Duration of reranking", "s", "With the longest that the gateway waits.", *percentiles(RERANK), timeout), "time-out"
            )
        )
        .with_panel(
            lines(
                "Scored share",
                "percentunit",
                "Of what was sent.",
                query(quantile(0.1, "reranker_scored_share"), "p10"),
                query(quantile(0.5, "reranker_scored_share"), "p50"),
            )
        )
        .with_row(Row("Is it worth its price?"))
        .with_panel(lines("Changed top 5", "percentunit", "Reranking that changes nothing is wasted.", query(_churn(), "changed")))
        .with_panel(lines("Changed places in the top 5", "short", "Mean over the reranked searches.", query(_moved(), "places")))
        .with_panel(
            lines(
                "Calls to the provider",
                "reqps",
                "Hosted ones are paid by the call.",
                query(total("reranker_provider_calls_total", by="reranker_provider"), "{{reranker_provider}}"),
            )
        )
        .with_panel(
            lines(
                "Characters sent to the provider",
                "short",
                "Per second.",
                query(total("reranker_provider_characters_total", by="reranker_provider"), "{{reranker_provider}}"),
            )
        )
        .with_panel(
            lines(
                "Candidates per search",
                "short",
                "After fusion.",
                query(quantile(0.5, "knowledge_candidates"), "p50"),
                query(quantile(0.95, "knowledge_candidates"), "p95"),
            )
        )
        .with_panel(bars("Failures seen by the reranker-service", "reqps", "By its own reason.", query(_errors(), "{{error_type}}")))
    )


def _churn() -> str:
    return f"1 - {total('knowledge_rerank_moved_bucket', UNMOVED)} / {total('knowledge_rerank_moved_count')}"


def _moved() -> str:
    return f"{total('knowledge_rerank_moved_sum')} / {total('knowledge_rerank_moved_count')}"


def _errors() -> str:
    return total("gen_ai_server_request_duration_seconds_count", 'gen_ai_operation_name="rerank"', 'error_type!=""', by="error_type")
