"""A model of the shape of bge-reranker-v2-m3 with random weights: what it costs in time and memory, never what it is worth."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from modelkit import ModelFiles, ensure, manifest
from modelkit.encoder_graph import Shape, write_encoder

LAYERS, HIDDEN, WIDE, VOCABULARY, POSITIONS, HEADS = 24, 1024, 4096, 250_002, 8_194, 16
"""XLM-RoBERTa large."""

SPREAD = 0.02
MODEL = "bge-reranker-v2-m3"
TOKENIZER_OF = "multilingual-e5-small"
"""The same vocabulary, and its files can be had everywhere."""


@dataclass(frozen=True, slots=True)
class RandomModel:
    """The files at both precisions."""

    int8: ModelFiles
    fp32: ModelFiles


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


def random_model(folder: Path, say: Callable[[str], None]) -> RandomModel:
    """Made once in `folder`, which takes 3 GB on disk and for half a minute 9 GB of memory."""
    spec = manifest().get(MODEL)
    int8, fp32 = (ModelFiles(spec, precision, "random", folder) for precision in ("int8", "fp32"))
    if not int8.model.exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(ensure(TOKENIZER_OF).tokenizer, int8.tokenizer)
        say("a model of the shape of bge-reranker-v2-m3, random weights (once)")
        write_encoder(fp32.model, random_weights(), Shape(LAYERS, HEADS, 1e-5, "xlmr", scoring_head=True), external_data=True)
        _quantize(fp32.model, int8.model, say)
    return RandomModel(int8, fp32)


def _quantize(source: Path, target: Path, say: Callable[[str], None]) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: TID251 - modelkit has set up the runtime before

    say("its int8 form (once)")
    partial = target.with_suffix(".part")
    quantize_dynamic(
        str(source),
        str(partial),
        weight_type=QuantType.QInt8,
        per_channel=True,
        extra_options={"MatMulConstBOnly": True},
    )
    partial.rename(target)
