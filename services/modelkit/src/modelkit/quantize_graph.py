"""Quantises an ONNX graph, run in a process of its own.

    python -m modelkit.quantize_graph SOURCE TARGET

Takes about four times the size of the fp32 weights in memory: 9 GB for the shape of bge-reranker-v2-m3.
"""

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: TID251 - the package has set up the runtime before


def quantize_graph(full: Path, finished: Path) -> None:
    """Dynamic int8 of the weight matrices, a scale for each output channel; activations stay float until they are multiplied."""
    options = {"MatMulConstBOnly": True}
    quantize_dynamic(full, finished, weight_type=QuantType.QInt8, per_channel=True, extra_options=options)


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    with TemporaryDirectory(dir=target.parent, prefix=".tmp-quantize-") as scratch:
        quantize_graph(source, Path(scratch) / target.name)
        shutil.move(Path(scratch) / target.name, target)
