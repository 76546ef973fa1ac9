"""How well the gateway ranks: legs, hybrid and reranked, on judged data, through its own pipeline."""
