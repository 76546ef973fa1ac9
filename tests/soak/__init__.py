"""Whether the reranker-service stays as it is under load: its memory over time, and its promises when too much is asked."""
