"""Utilisation, saturation, errors: how near is each service to its end?"""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from tests.observe.dashboards.panels import bars, board, figure, lines, quantile, query, rate, selector, total, whole

SERVED = 'service=~"$service"'
REFUSED = 'http_response_status_code=~"429|503"'
REQUESTS = "http_server_request_duration_seconds_count"


def capacity() -> Dashboard:
    """knowledge-capacity."""
    made = board("knowledge-capacity", "Knowledge: capacity", "How near is each service to its end?")
    queue = f"max(max_over_time(reranker_queue_size{selector()}[$__range]))"
    busy = f"max(max_over_time(http_server_active_requests{selector()}[$__range]))"
    refused = f"({whole(REQUESTS, REFUSED)} or vector(0)) / {whole(REQUESTS)}"
    memory = f"max(process_resident_memory_bytes{selector(SERVED)})"
    pods = "{{service}} {{pod}}"
    return (
        made.with_row(Row("Saturation"))
        .with_panel(figure("Longest queue", "short", queue, "Pairs that waited in one reranker-service.", (50, "orange"), (100, "red")))
        .with_panel(figure("Most requests at once", "short", busy, "In one process."))
        .with_panel(figure("Refused", "percentunit", refused, "Requests answered with 429 or 503.", (0.01, "orange"), (0.05, "red")))
        .with_panel(figure("Largest process", "bytes", memory, "Resident memory."))
        .with_panel(
            lines(
                "Pairs waiting",
                "short",
                "Accepted by the reranker-service and not started.",
                query(f"reranker_queue_size{selector()}", pods),
            )
        )
        .with_panel(
            lines(
                "Requests in flight",
                "short",
                "Of each process.",
                query(f"sum by (service, pod) (http_server_active_requests{selector(SERVED)})", pods),
            )
        )
        .with_panel(
            bars(
                "Refused and failed",
                "reqps",
                "429: busy. 503: overloaded, loading or late.",
                query(_refused(), "{{service}} {{http_response_status_code}}"),
            )
        )
        .with_panel(
            lines(
                "Time of a pair",
                "s",
                "Of one pair of question and passage.",
                query(quantile(0.5, "reranker_pair_duration_seconds"), "p50"),
                query(quantile(0.95, "reranker_pair_duration_seconds"), "p95"),
            )
        )
        .with_panel(
            lines(
                "Predicted wait",
                "s",
                "Until a reranker-service will be done with all it accepted.",
                query(f"reranker_queue_duration_seconds{selector()}", pods),
            )
        )
        .with_panel(
            bars(
                "Look-ups in the reranker-service's caches",
                "short",
                "Per second.",
                query(_lookups(), "{{reranker_cache_name}} {{reranker_cache_result}}"),
            )
        )
        .with_row(Row("Work"))
        .with_panel(
            bars(
                "Pairs by outcome",
                "short",
                "Per second.",
                query(total("reranker_pairs_total", by="reranker_pair_outcome"), "{{reranker_pair_outcome}}"),
            )
        )
        .with_panel(
            lines(
                "Pairs per request",
                "short",
                "Of the reranker-service.",
                query(quantile(0.5, "reranker_batch_size"), "p50"),
                query(quantile(0.95, "reranker_batch_size"), "p95"),
            )
        )
        .with_panel(
            lines(
                "Texts embedded", "short", "Per second.", query(total("embedding_texts_total", by="embedding_kind"), "{{embedding_kind}}")
            )
        )
        .with_panel(
            bars(
                "Ingested passages by outcome",
                "short",
                "Per second, written through the gateway.",
                query(_ingested(), "{{knowledge_ingest_outcome}}"),
            )
        )
        .with_row(Row("Processes"))
        .with_panel(
            lines("CPU", "short", "Cores in use.", query(f"sum by (service, pod) ({rate('process_cpu_seconds_total', SERVED)})", pods))
        )
        .with_panel(lines("Memory", "bytes", "Resident.", query(f"process_resident_memory_bytes{selector(SERVED)}", pods)))
        .with_panel(lines("Open files", "short", "Sockets among them.", query(f"process_open_fds{selector(SERVED)}", pods)))
        .with_panel(lines("Up", "bool_yes_no", "Whether Prometheus reaches the metrics.", query(f"up{selector(SERVED)}", pods)))
    )


def _refused() -> str:
    return total(REQUESTS, SERVED, REFUSED, by="service, http_response_status_code")


def _ingested() -> str:
    return total("knowledge_ingest_items_total", by="knowledge_ingest_outcome")


def _lookups() -> str:
    return total("reranker_cache_lookups_total", by="reranker_cache_name, reranker_cache_result")
