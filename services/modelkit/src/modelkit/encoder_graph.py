"""A transformer encoder of the BERT or XLM-R family as an ONNX graph, put together from numpy weights.

Names of the weights (matrices stored as [in, out]):

- `embed.word` [V, H], `embed.position` [P, H], `embed.type` [T, H], `embed.norm.weight|bias` [H]
- of layer n: `n.query|key|value|attention_out.weight` [H, H], `n.up.weight` [H, F], `n.down.weight` [F, H], each with its
  `.bias`; `n.attention_norm.weight|bias` and `n.output_norm.weight|bias` [H]
- with a scoring head: `head.dense.weight` [H, H], `head.out.weight` [H, 1], each with its `.bias`

Inputs of the graph: `input_ids` and `attention_mask`, int64 [batch, sequence]. Output: `last_hidden_state` [batch, sequence, H],
or with the head `logits` [batch, 1].
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 20
IR_VERSION = 9
MASKED = -10_000.0

Weights = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Shape:
    """What the weights alone do not tell: layers, attention heads, epsilon of the norms, where positions start, the head."""

    layers: int
    heads: int
    epsilon: float = 1e-12
    positions: Literal["bert", "xlmr"] = "bert"
    scoring_head: bool = False


def write_encoder(path: Path, weights: Weights, shape: Shape, *, external_data: bool = False) -> None:
    """Write the graph to `path`; `external_data` puts the weights beside it (needed above 2 GB)."""
    model = _GraphBuilder(weights, shape).model()
    if external_data:
        beside = f"{path.name}.data"
        onnx.save_model(model, str(path), save_as_external_data=True, all_tensors_to_one_file=True, location=beside)
    else:
        onnx.save_model(model, str(path))


class _GraphBuilder:
    """Collects nodes and constants; each method adds one part of the network and returns the name of its result."""

    def __init__(self, weights: Weights, shape: Shape) -> None:
        self._weights = weights
        self._shape = shape
        self._hidden = weights["embed.word"].shape[1]
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}

    def model(self) -> Any:
        """The whole model."""
        self._shared_constants()
        state, bias = self._embeddings(), self._attention_bias()
        for layer in range(self._shape.layers):
            state = self._layer(state, bias, str(layer))
        output = self._output(state)
        ids = [helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", "sequence"]) for n in ("input_ids", "attention_mask")]
        graph = helper.make_graph(self._nodes, "encoder", ids, [output], list(self._constants.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = IR_VERSION
        return model

    def _add(self, kind: str, inputs: Sequence[str], output: str | None = None, **attributes: Any) -> str:
        name = f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [output or name], name=name, **attributes))
        return output or name

    def _constant(self, name: str, value: NDArray[Any]) -> str:
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(np.array(value, order="C"), name)
        return name

    def _weight(self, name: str) -> str:
        return self._constant(name, self._weights[name])

    def _shared_constants(self) -> None:
        head_size = self._hidden // self._shape.heads
        integers = {
            "zero": [0],
            "one": [1],
            "two": [2],
            "axes_12": [1, 2],
            "split_heads": [0, 0, self._shape.heads, head_size],
            "join_heads": [0, 0, self._hidden],
        }
        for name, value in integers.items():
            self._constant(name, np.array(value, np.int64))
        for name, scalar in (("axis_1", 1), ("index_0", 0), ("pad_id", 1)):
            self._constant(name, np.array(scalar, np.int64))
        for name, number in (("unit", 1.0), ("masked", MASKED), ("query_scale", head_size**-0.5)):
            self._constant(name, np.array(number, np.float32))

    def _linear(self, state: str, name: str) -> str:
        product = self._add("MatMul", [state, self._weight(f"{name}.weight")])
        return self._add("Add", [product, self._weight(f"{name}.bias")])

    def _norm(self, state: str, name: str) -> str:
        inputs = [state, self._weight(f"{name}.weight"), self._weight(f"{name}.bias")]
        return self._add("LayerNormalization", inputs, axis=-1, epsilon=self._shape.epsilon)

    def _embeddings(self) -> str:
        words = self._add("Gather", [self._weight("embed.word"), "input_ids"], axis=0)
        state = self._add("Add", [words, self._positions()])
        state = self._add("Add", [state, self._constant("embed.type_0", self._weights["embed.type"][0])])
        return self._norm(state, "embed.norm")

    def _positions(self) -> str:
        table = self._weight("embed.position")
        if self._shape.positions == "bert":  # rows 0 .. sequence - 1
            length = self._add("Slice", [self._add("Shape", ["input_ids"]), "one", "two", "zero"])
            return self._add("Slice", [table, "zero", length, "zero"])
        # XLM-R counts real tokens from pad id + 1; padding stays at the pad id
        counted = self._add("CumSum", ["attention_mask", "axis_1"])
        rows = self._add("Add", [self._add("Mul", [counted, "attention_mask"]), "pad_id"])
        return self._add("Gather", [table, rows], axis=0)

    def _attention_bias(self) -> str:
        mask = self._add("Cast", ["attention_mask"], to=TensorProto.FLOAT)
        mask = self._add("Unsqueeze", [mask, "axes_12"])
        return self._add("Mul", [self._add("Sub", ["unit", mask]), "masked"])

    def _layer(self, state: str, bias: str, layer: str) -> str:
        attended = self._linear(self._attention(state, bias, layer), f"{layer}.attention_out")
        state = self._norm(self._add("Add", [attended, state]), f"{layer}.attention_norm")
        wide = self._add("Gelu", [self._linear(state, f"{layer}.up")])
        return self._norm(self._add("Add", [self._linear(wide, f"{layer}.down"), state]), f"{layer}.output_norm")

    def _attention(self, state: str, bias: str, layer: str) -> str:
        query, key, value = (
            self._add("Reshape", [self._linear(state, f"{layer}.{part}"), "split_heads"]) for part in ("query", "key", "value")
        )
        query = self._add("Mul", [self._add("Transpose", [query], perm=[0, 2, 1, 3]), "query_scale"])
        key = self._add("Transpose", [key], perm=[0, 2, 3, 1])
        value = self._add("Transpose", [value], perm=[0, 2, 1, 3])
        shares = self._add("Softmax", [self._add("Add", [self._add("MatMul", [query, key]), bias])], axis=-1)
        mixed = self._add("Transpose", [self._add("MatMul", [shares, value])], perm=[0, 2, 1, 3])
        return self._add("Reshape", [mixed, "join_heads"])

    def _output(self, state: str) -> Any:
        if not self._shape.scoring_head:
            self._add("Identity", [state], "last_hidden_state")
            return helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "sequence", self._hidden])
        first = self._add("Gather", [state, "index_0"], axis=1)
        dense = self._add("Tanh", [self._linear(first, "head.dense")])
        self._add("Identity", [self._linear(dense, "head.out")], "logits")
        return helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 1])
