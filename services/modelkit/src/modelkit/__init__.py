"""Pinned model files, tokenizers and ONNX sessions, shared by the two model services."""

from modelkit.cpu import Cpus, usable_cpus
from modelkit.cross_encoder import CrossEncoder
from modelkit.encoder import Embedding, Encoder
from modelkit.errors import (
    ConversionError,
    DamagedFileError,
    ModelError,
    UnavailableError,
    UnknownModelError,
    UnverifiedFileError,
)
from modelkit.fetch import cached, ensure
from modelkit.manifest import ModelSpec, manifest
from modelkit.progress import LineProgress, Progress
from modelkit.store import ModelFiles, default_cache
from modelkit.tokenize import QueryTokens, Tokens, clean

__all__ = [
    "ConversionError",
    "Cpus",
    "CrossEncoder",
    "DamagedFileError",
    "Embedding",
    "Encoder",
    "LineProgress",
    "ModelError",
    "ModelFiles",
    "ModelSpec",
    "Progress",
    "QueryTokens",
    "Tokens",
    "UnavailableError",
    "UnknownModelError",
    "UnverifiedFileError",
    "cached",
    "clean",
    "default_cache",
    "ensure",
    "manifest",
    "usable_cpus",
]
