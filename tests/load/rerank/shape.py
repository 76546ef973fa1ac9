"""A model of the shape of bge-reranker-v2-m3 with random weights: what it costs in time and memory, never what it is worth."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from modelkit import ModelFiles, ensure, manifest
from modelkit.conversion import run_apart
from modelkit.encoder_graph import Shape, write_encoder
from modelkit.manifest import OPENVINO, Precision
from modelkit.quantization import MEMORY, calibration
from tests.load.rerank.texts import Texts

LAYERS, HIDDEN, WIDE, VOCABULARY, POSITIONS, HEADS = 24, 1024, 4096, 250_002, 8_194, 16
"""XLM-RoBERTa large."""

SPREAD = 0.02
CALIBRATION = 40
"""Pairs for int8-static; the weights are random, so more would show nothing."""

MODEL = "bge-reranker-v2-m3"
TOKENIZER_OF = "multilingual-e5-small"
"""The same vocabulary, and its files can be had everywhere."""


def random_weights(seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Weights by the names of `modelkit.encoder_graph`."""
    chance = np.random.default_rng(seed)

    def normal(*shape: int) -> NDArray[np.float32]:
        return chance.standard_normal(shape, dtype=np.float32) * np.float32(SPREAD)

    def norm(name: str) -> dict[str, NDArray[np.float32]]:
        return {f"{name}.weight": np.ones(HIDDEN, np.float32), f"{name}.bias": np.zeros(HIDDEN, np.float32)}

    def linear(name: str, rows: int, columns: int) -> dict[str, NDArray[np.float32]]:
        return {f"{name}.weight": normal(rows, columns), f"{name}.bias": np.zeros(columns, np.float32)}

    weights = {"embed.word": normal(VOCABULARY, HIDDEN), "embed.position": normal(POSITIONS, HIDDEN), "embed.type": normal(1, HIDDEN)}
    weights |= norm("embed.norm")
    for layer in range(LAYERS):
        for part in ("query", "key", "value", "attention_out"):
            weights |= linear(f"{layer}.{part}", HIDDEN, HIDDEN)
        weights |= linear(f"{layer}.up", HIDDEN, WIDE) | linear(f"{layer}.down", WIDE, HIDDEN)
        weights |= norm(f"{layer}.attention_norm") | norm(f"{layer}.output_norm")
    return weights | linear("head.dense", HIDDEN, HIDDEN) | linear("head.out", HIDDEN, 1)


def random_model(folder: Path, texts: Texts, say: Callable[[str], None]) -> dict[Precision, ModelFiles]:
    """Made once in `folder` at every precision, which takes 6 GB on disk and for some minutes 9 GB of memory."""
    spec = manifest().get(MODEL)
    every: tuple[Precision, ...] = ("fp32", "int8", *OPENVINO)
    files = {precision: ModelFiles(spec, precision, "random", folder) for precision in every}
    full = files["fp32"]
    if not full.model.exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(ensure(TOKENIZER_OF).tokenizer, full.tokenizer)
        say("a model of the shape of bge-reranker-v2-m3, random weights (once)")
        write_encoder(full.model, random_weights(), Shape(LAYERS, HEADS, 1e-5, "xlmr", scoring_head=True), external_data=True)
    for precision, made in files.items():
        if not made.model.exists():
            say(f"the same as {precision} (once)")
            _make(full, made, texts)
    return files


def _make(full: ModelFiles, made: ModelFiles, texts: Texts) -> None:
    """As `knowledge-models quantize` does it, which would not keep what has no stored scores to be held to."""
    if made.precision == "int8":
        run_apart("modelkit.quantize_graph", full.model, made.model, memory=MEMORY)
        return
    with TemporaryDirectory(dir=full.folder, prefix=".tmp-") as scratch:
        asked = [texts.equal() for _ in range(CALIBRATION)]
        pairs = [(each.query, document) for each in asked for document in each.documents[:1]]
        words = [str(calibration(full, pairs, Path(scratch)))] if made.precision == "int8-static" else []
        packages = ("openvino", "nncf")
        run_apart("modelkit.openvino_graph", full.model, made.model, made.precision, *words, memory=MEMORY, packages=packages)
