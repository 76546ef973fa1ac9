"""One file a rerank provider; all pass one contract suite."""
