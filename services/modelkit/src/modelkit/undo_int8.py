"""Makes an fp32 graph of a dynamically quantised one, with the same weights: what other precisions can be made from.

    python -m modelkit.undo_int8 SOURCE TARGET

The weights stay those that 8 bits can say; what goes away is the rounding of what is multiplied with them.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper


def undo_int8(source: Path, target: Path) -> None:
    """Put a MatMul in the place of each group that ONNX Runtime's dynamic quantisation made of one.

    The group is DynamicQuantizeLinear -> MatMulInteger -> Cast -> Mul, where the other factor is the product of both scales.

    Raises:
        ValueError: there is no such group.
    """
    model = onnx.load(source)
    graph = model.graph
    constants = {each.name: each for each in graph.initializer}
    made_by = {output: node for node in graph.node for output in node.output}
    read_by = {name: node for node in graph.node for name in node.input}
    undone: dict[str, onnx.NodeProto] = {}
    weights: dict[str, onnx.TensorProto] = {}
    for node in graph.node:
        if node.op_type == "MatMulInteger":
            scaled = read_by[read_by[node.output[0]].output[0]]
            scale = made_by[scaled.input[1]].input[1]
            weight = node.input[1] + "_undone"
            weights[weight] = numpy_helper.from_array(_weight(constants, node, scale), weight)
            undone[scaled.output[0]] = helper.make_node("MatMul", [made_by[node.input[0]].input[0], weight], scaled.output)
    if not undone:
        raise ValueError(f"{source.name} is not dynamically quantised")
    nodes = _needed([undone.get(node.output[0], node) for node in graph.node], {each.name for each in graph.output})
    read = {name for node in nodes for name in node.input}
    kept = [each for each in graph.initializer if each.name in read] + list(weights.values())
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(kept)
    onnx.checker.check_model(model)
    onnx.save(model, target)


def _weight(constants: Mapping[str, onnx.TensorProto], node: onnx.NodeProto, scale: str) -> np.ndarray:
    whole, zero, step = (numpy_helper.to_array(constants[name]).astype(np.float32) for name in (node.input[1], node.input[3], scale))
    return (whole - zero) * step


def _needed(nodes: list[onnx.NodeProto], outputs: set[str]) -> list[onnx.NodeProto]:
    """Those that the outputs depend on, in the order given, which is one in which they can be run."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted & set(node.output):
            wanted |= set(node.input)
            kept.append(node)
    return kept[::-1]


if __name__ == "__main__":
    undo_int8(*map(Path, sys.argv[1:]))
