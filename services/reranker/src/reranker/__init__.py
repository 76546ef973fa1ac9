"""The reranker-service: anytime scoring of query-passage pairs on CPU."""
