"""OpenVINO without its telemetry. Import it from here, nowhere else.

The package reports each import to its makers, and nncf each use, through openvino_telemetry. Both do without where that cannot be
imported; a None in its place sees to it.
"""

import sys
from functools import cache

sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]

import openvino  # noqa: E402 - after that

__all__ = ["core", "openvino"]


@cache
def core() -> openvino.Core:
    """The one of this process.

    Its plugin gives the thread that loads it a stack for signals, and frees that with itself: ended on another thread, it would
    leave the first one without, and the next signal there would end the process.
    """
    return openvino.Core()
