"""The runtime keeps to itself."""

import os
import subprocess
import sys
from pathlib import Path

OPEN_A_SESSION = """
import numpy as np
from modelkit.cpu import Cpus
from modelkit.encoder_graph import Shape, write_encoder
from modelkit.session import OnnxModel
from pathlib import Path
names = ["embed.word", "embed.position", "embed.type"]
weights = {name: np.ones((8, 8), np.float32) for name in names}
weights |= {f"embed.norm.{part}": np.ones(8, np.float32) for part in ("weight", "bias")}
write_encoder(Path("model.onnx"), weights, Shape(0, 2))
OnnxModel(Path("model.onnx"), Cpus(1, False)).run(np.arange(3), np.zeros(3, np.int64))
"""
FREE_A_HEAP = """
import platform
from pathlib import Path
from modelkit.runtime import LARGE_BLOCK_BYTES, return_freed_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

if platform.libc_ver()[0] == "glibc":
    return_freed_memory()
    before = resident()
    for _ in range(3):  # by itself glibc keeps the second in its heap, below a block that is still held
        block = bytearray(b"x") * (4 * LARGE_BLOCK_BYTES)
        small = bytearray(b"x") * 100_000
        assert resident() > before + 3 * LARGE_BLOCK_BYTES
        del block
        assert resident() < before + LARGE_BLOCK_BYTES
"""


def test_nothing_is_written_for_telemetry(tmp_path: Path) -> None:
    """No device id and no queue of reports in the user's folders, even where somebody switched telemetry on."""
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "ORT_DISABLE_TELEMETRY": "0"}
    # An automatic build is not reported from; this must hold outside of one.
    environment = {name: value for name, value in os.environ.items() if name in ("PATH", "LD_LIBRARY_PATH", "LANG")}
    words = [sys.executable, "-c", OPEN_A_SESSION]
    result = subprocess.run(words, cwd=tmp_path, env={**environment, **home}, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["model.onnx"]


def test_large_blocks_go_back_to_the_system() -> None:
    """Those that were freed, also below one that is held."""
    result = subprocess.run([sys.executable, "-c", FREE_A_HEAP], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
