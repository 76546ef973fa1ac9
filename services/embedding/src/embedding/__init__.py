"""The embedding-service: query and passage vectors from a pinned model."""
