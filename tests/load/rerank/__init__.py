"""`make bench-rerank`: the reranker-service against a padded batch, against its peers, under deadlines and overload."""
