"""Makes a graph for OpenVINO, run in a process of its own.

    python -m modelkit.openvino_graph SOURCE TARGET bf16 | int8-weights | int8-static PAIRS

PAIRS holds the inputs of one run on each line, as JSON. Takes about four times the fp32 weights in memory.
"""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from modelkit.openvino_runtime import openvino
from modelkit.openvino_session import padded


def openvino_graph(source: Path, target: Path, precision: str, pairs: Path | None = None) -> None:
    """Write `target` and its weights.

    Args:
        source: an fp32 graph.
        target: an `.xml`.
        precision: bf16: weights in 16 bits. int8-weights: weights in 8 bits, a scale for each output channel. int8-static: what is
            multiplied with them in 8 bits too, of a range that was seen in `pairs`.
        pairs: see above.
    """
    model = openvino.Core().read_model(source)
    if precision != "bf16":
        model = _quantized(model, precision, pairs)
    with TemporaryDirectory(dir=target.parent, prefix=".tmp-openvino-") as scratch:
        openvino.save_model(model, Path(scratch) / target.name, compress_to_fp16=precision == "bf16")
        for made in (target.with_suffix(".bin"), target):
            shutil.move(Path(scratch) / made.name, made)


def _quantized(model: openvino.Model, precision: str, pairs: Path | None) -> openvino.Model:
    import nncf  # noqa: TID251 - openvino_runtime has silenced it before

    if precision == "int8-weights":
        return nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)
    if pairs is None:
        raise ValueError("int8-static takes pairs to calibrate with")
    inputs = {each.any_name for each in model.inputs}
    runs = [{name: value for name, value in run.items() if name in inputs} for run in _runs(pairs)]
    return nncf.quantize(model, nncf.Dataset(runs), model_type=nncf.ModelType.TRANSFORMER, subset_size=len(runs))


def _runs(pairs: Path) -> Iterator[dict[str, np.ndarray]]:
    for line in pairs.read_text(encoding="utf-8").splitlines():
        run = {name: np.array(values, np.int64) for name, values in json.loads(line).items()}
        yield padded(run["input_ids"], run["token_type_ids"])  # as when served: what masks the padding has a range too


if __name__ == "__main__":
    read, write, as_precision, *given = sys.argv[1:]
    openvino_graph(Path(read), Path(write), as_precision, *map(Path, given))
