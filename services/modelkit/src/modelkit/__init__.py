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
    WrongScoreError,
)
from modelkit.fetch import cached, ensure
from modelkit.manifest import ModelSpec, manifest
from modelkit.precision import files_to_serve
from modelkit.progress import LineProgress, Progress
from modelkit.serving import Background, Deadline, Gate, NotServed
from modelkit.store import ModelFiles, default_cache
from modelkit.tokenize import QueryTokens, Tokens, is_blank, mend_surrogates

__all__ = [
    "Background",
    "ConversionError",
    "Cpus",
    "CrossEncoder",
    "DamagedFileError",
    "Deadline",
    "Embedding",
    "Encoder",
    "Gate",
    "LineProgress",
    "ModelError",
    "ModelFiles",
    "ModelSpec",
    "NotServed",
    "Progress",
    "QueryTokens",
    "Tokens",
    "UnavailableError",
    "UnknownModelError",
    "UnverifiedFileError",
    "WrongScoreError",
    "cached",
    "default_cache",
    "ensure",
    "files_to_serve",
    "is_blank",
    "manifest",
    "mend_surrogates",
    "usable_cpus",
]
