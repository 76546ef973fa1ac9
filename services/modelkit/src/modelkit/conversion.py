"""Runs a conversion in a process of its own, so that a service does not keep the memory it takes."""

import subprocess
import sys
from collections.abc import Sequence
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
    module, source = CONVERTERS[conversion]
    return run_apart(module, folder / source, target, precision, memory="1.5 GB")


def run_apart(
    module: str,
    source: Path,
    target: Path,
    *words: str,
    memory: str,
    packages: Sequence[str] = ("onnx", "onnxruntime"),
    extra: str = "convert",
) -> dict[str, str]:
    """Run `python -m module SOURCE TARGET WORDS`, which makes `target`.

    Args:
        module: one of this package.
        source: what it reads.
        target: what it makes.
        words: more arguments.
        memory: what it takes at most, for the message if it is ended from outside.
        packages: what it imports that may not be installed, numpy aside.
        extra: the extra of this package that installs them.

    Returns:
        The versions of the packages that the result depends on.

    Raises:
        ConversionError: a package is missing, or the module failed.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise ConversionError(
            f"{target.name} has to be converted once, and what that takes is not installed ({', '.join(missing)}). Install "
            f"knowledge-modelkit[{extra}], or copy the converted model's folder from a machine that has it."
        )
    command = [sys.executable, "-m", module, str(source), str(target), *words]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)  # noqa: S603 - our own module
    except subprocess.TimeoutExpired:
        raise ConversionError(f"converting {source.name} to {target.name} was ended after {TIMEOUT_S // 60} minutes.") from None
    if result.returncode != 0:
        last = (result.stderr.strip().splitlines() or [f"it was ended from outside, perhaps for want of memory ({memory})"])[-1]
        raise ConversionError(f"converting {source.name} to {target.name} failed: {last[:300]}. Free some memory, or report this line.")
    return {name: version(name) for name in (*packages, "numpy")}
