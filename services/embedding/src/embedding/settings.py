"""Settings of the embedding-service."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from servicekit.settings import SettingsGroup

PREFIXES = ("EMBEDDING_",)
NEIGHBOURS = frozenset({"EMBEDDING_URL", "EMBEDDING_TIMEOUT_S"})
"""The gateway's settings that begin like ours: a `.env` may be shared."""


class EmbeddingSettings(SettingsGroup):
    """What the service can be told."""

    embedding_model: str = "multilingual-e5-small"
    embedding_deadline_s: float = Field(4.0, gt=0, le=600)
    model_cache_dir: Path | None = None
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
