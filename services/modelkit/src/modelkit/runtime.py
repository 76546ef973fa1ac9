"""ONNX Runtime with its telemetry off. Import it from here, nowhere else.

The official builds write a device id into the user's cache folder and report to their makers, unless this variable is set before
the library is loaded; its own switch comes after the first report. It is set for the library (and for processes started from
here), not read as a setting: nothing that a user writes turns it on again.
"""

import os

os.putenv("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as _state

RUN_ERRORS: tuple[type[Exception], ...] = (_state.Fail, _state.InvalidArgument, _state.RuntimeException, _state.EPFail)
"""What a run of a session may end with."""

__all__ = ["RUN_ERRORS", "ort"]
