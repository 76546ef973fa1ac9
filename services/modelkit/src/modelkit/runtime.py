"""ONNX Runtime with its telemetry off. Import it from here, nowhere else.

The official builds write a device id into the user's cache folder and report to their makers, unless this variable is set before
the library is loaded; its own switch comes after the first report. It is set for the library (and for processes started from
here), not read as a setting: nothing that a user writes turns it on again.
"""

import ctypes
import os

os.putenv("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as _state

RUN_ERRORS: tuple[type[Exception], ...] = (_state.Fail, _state.InvalidArgument, _state.RuntimeException, _state.EPFail)
"""What a run of a session may end with."""

__all__ = ["RUN_ERRORS", "ort", "return_freed_memory"]

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
LARGE_BLOCK_BYTES = 4 << 20


def return_freed_memory() -> None:
    """Let large blocks go back to the system when they are freed; for a whole process, at its start.

    Each run frees what it took, but glibc by and by takes larger and larger blocks from heaps (one for each thread) that can only
    shrink from their end: a process of 200 MB grew to 700 MB under mixed lengths. Other C libraries do not do that.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
        mallopt(_M_TRIM_THRESHOLD, LARGE_BLOCK_BYTES)
