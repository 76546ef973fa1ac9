"""The knowledge gateway: retrieve wide, rerank sharp, never late, never silent, never leaking."""
