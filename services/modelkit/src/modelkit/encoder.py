"""Texts to vectors: one for a whole text, or one for each of its tokens."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from modelkit.cpu import Cpus
from modelkit.session import Stop, open_session
from modelkit.store import ModelFiles
from modelkit.tokenize import TextTokenizer, Tokens

TextKind = Literal["query", "passage"]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Embedding:
    """A text's vector, [dimension], of length 1; and whether the text was cut."""

    vector: Floats
    tokens: int
    truncated: bool


class Encoder:
    """An embedding model. Prefixes, pooling and normalisation are the manifest's.

    Args:
        files: verified files of an embedding or late-interaction model.
        cpus: what the session may use.
        threads: threads of one run.
    """

    def __init__(self, files: ModelFiles, cpus: Cpus, *, threads: int = 1) -> None:
        spec = files.spec
        self.spec = spec
        self._prefixes: dict[TextKind, str] = {"query": spec.query_prefix, "passage": spec.passage_prefix}
        self._tokenizer = TextTokenizer(files.tokenizer, spec.template, spec.max_tokens)
        self._model = open_session(files, cpus, threads=threads)

    def prepare(self) -> None:
        """Do once what would make first runs slow."""
        self._model.prepare(self.spec.max_tokens)

    def tokenize(self, text: str, kind: TextKind) -> Tokens:
        """The text as it will be run, prefix included; any `str` is fine, an empty one too."""
        return self._tokenizer.single(text, self._prefixes[kind])

    def embed(self, text: str, kind: TextKind) -> Embedding:
        """The pooled vector of one text."""
        tokens = self.tokenize(text, kind)
        states = self._model.run(tokens.ids, tokens.type_ids)
        pooled = states[0] if self.spec.pooling == "cls" else states.mean(axis=0)
        return Embedding(_normalised(pooled), len(tokens), tokens.truncated)

    def token_vectors(self, tokens: Tokens, stop: Stop | None = None) -> Floats:
        """The vectors of the text's own tokens (no prefix, no special ones), each of length 1, [content tokens, dimension]."""
        states = self._model.run(tokens.ids, tokens.type_ids, stop)
        return _normalised(states[tokens.content])


def _normalised(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)
