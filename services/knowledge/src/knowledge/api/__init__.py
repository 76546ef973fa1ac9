"""The HTTP API: thin endpoints over the pipeline and the ingestor."""
