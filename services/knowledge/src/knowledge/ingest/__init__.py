"""Ingestion: read sources, give chunks their identity, embed what is new, write what changed, report the rest."""
