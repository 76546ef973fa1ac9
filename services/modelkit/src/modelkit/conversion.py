"""Runs a conversion in a process of its own, so that a service does not keep the memory it takes."""

import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from modelkit.errors import ConversionError
from modelkit.manifest import Precision

TIMEOUT_S = 900
CONVERTERS = {"e5-q4": ("modelkit.convert_e5", "e5-small-q4.bin")}
"""Name of the conversion: the module that does it, and the file it reads."""


def input_of(conversion: str) -> str:
    """The file name of the weights that the conversion reads; not needed once it is done."""
    return CONVERTERS[conversion][1]


def convert(conversion: str, folder: Path, target: Path, precision: Precision) -> dict[str, str]:
    """Convert the weights in `folder` to `target`.

    Returns:
        The versions of the packages that the result depends on.

    Raises:
        ConversionError: the `onnx` package is missing, or the conversion failed.
    """
    if find_spec("onnx") is None:
        raise ConversionError(
            f"{target.name} has to be converted once, and the package onnx, which that takes, is not installed. Install "
            "knowledge-modelkit[convert], or copy the converted model's folder from a machine that has it."
        )
    module, source = CONVERTERS[conversion]
    words = [sys.executable, "-m", module, str(folder / source), str(target), precision]
    result = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)  # noqa: S603 - our own module
    if result.returncode != 0:
        last = (result.stderr.strip().splitlines() or ["it was ended from outside, perhaps for want of memory (1.5 GB)"])[-1]
        raise ConversionError(f"converting {source} to {target.name} failed: {last[:300]}. Free some memory, or report this line.")
    return {name: version(name) for name in ("onnx", "onnxruntime", "numpy")}
