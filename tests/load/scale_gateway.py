"""The gateway as `knowledge serve` runs it, with one part exchanged: vectors of known texts come out of a file, not of a model.

python tests/load/scale_gateway.py VECTORS.json
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from knowledge.app import DISTRIBUTION, Adapters, create_app, new_backend
from knowledge.models import Embeddings
from knowledge.settings import load_settings
from knowledge.telemetry import SERVICE
from servicekit.server import serve
from servicekit.telemetry import set_up_telemetry

Vector = tuple[float, ...]


class KnownVectors:
    """Implements the `Embedder` port for texts whose vectors are known."""

    def __init__(self, vectors: Mapping[str, Vector], *, fingerprint: str, dimension: int) -> None:
        self._vectors = vectors
        self._fingerprint, self._dimension = fingerprint, dimension

    async def embed(self, texts: Sequence[str], kind: Literal["query", "passage"], timeout_s: float) -> Embeddings:
        """Looks them up. A text that is not known is a KeyError."""
        del kind, timeout_s
        return Embeddings(tuple(self._vectors[text] for text in texts), "known", self._fingerprint)

    async def info(self, timeout_s: float) -> dict[str, Any]:
        """What the embedding-service would say."""
        del timeout_s
        return {"fingerprint": self._fingerprint, "dimension": self._dimension}

    async def aclose(self) -> None:
        """Nothing is open."""


def main() -> None:
    """Serve until SIGTERM, with the settings of the environment."""
    known = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    vectors = {text: tuple(vector) for text, vector in known["vectors"].items()}
    settings, _ = load_settings()
    telemetry = set_up_telemetry(SERVICE, DISTRIBUTION)
    adapters = Adapters(
        backend=new_backend(settings.search, telemetry),
        embedder=KnownVectors(vectors, fingerprint=known["fingerprint"], dimension=known["dimension"]),
        reranker=None,
        keys=None,
    )
    serve(
        SERVICE,
        0,
        lambda: settings.process.log_level,
        lambda: create_app(settings, telemetry=telemetry, adapters=adapters, clock=time.monotonic),
        grace_s=lambda: 5,
    )


if __name__ == "__main__":
    main()
