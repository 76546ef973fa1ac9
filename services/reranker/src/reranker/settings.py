"""Settings of the reranker-service."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from servicekit.settings import SettingsGroup

PREFIXES = ("RERANK_",)
NEIGHBOURS = frozenset({"RERANK_EXCERPT"})
"""The gateway's settings that begin like ours: a `.env` may be shared."""


class RerankSettings(SettingsGroup):
    """What the service can be told."""

    rerank_model: str = "bge-reranker-v2-m3"
    rerank_cascade_model: str = ""
    rerank_settled_after: int = Field(0, ge=0)
    rerank_settled_top: int = Field(5, ge=1)
    rerank_deadline_s: float = Field(25.0, gt=0, le=600)
    rerank_scored_chars_budget: int = Field(7500, ge=0)
    rerank_precision: Literal["auto", "int8", "fp32", "bf16", "int8-static", "int8-weights"] = "auto"
    rerank_cache_entries: int = Field(10_000, ge=0)
    rerank_passage_cache_mb: int = Field(64, ge=0)
    rerank_api_key: SecretStr | None = None
    model_cache_dir: Path | None = None
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
