"""OpenVINO without its telemetry. Import it from here, nowhere else.

The package reports each import to its makers, and nncf each use, through openvino_telemetry. Both do without where that cannot be
imported; a None in its place sees to it.
"""

import sys

sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]

import openvino  # noqa: E402 - after that

__all__ = ["openvino"]
