"""Both ways to tell of progress."""

import pytest

from modelkit.progress import BarProgress, LineProgress, stderr_progress


def test_lines_tell_begin_and_end() -> None:
    """With the size where it is known."""
    lines: list[str] = []
    progress = LineProgress(lines.append)
    with progress.task("model.onnx", 34_000_000) as advance:
        advance(34_000_000)
    with progress.task("converting", None):
        progress.note("a word in between")
    assert lines == ["model.onnx (34 MB) ...", "model.onnx: done", "converting ...", "a word in between", "converting: done"]


def test_without_a_terminal_there_are_plain_lines_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """No escape sequences in a log, and nothing on stdout."""
    progress = stderr_progress()
    with progress.task("model.onnx [1/2]", None):
        pass
    captured = capsys.readouterr()
    assert captured.err == "model.onnx [1/2] ...\nmodel.onnx [1/2]: done\n"
    assert captured.out == ""


@pytest.mark.parametrize("total", [2, None])
def test_bars_take_known_and_unknown_sizes(total: int | None, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the terminal makes of them."""
    progress = BarProgress()
    with progress.task("model.onnx", total) as advance:
        advance(1)
        advance(1)
    progress.note("done")
    assert "done" in capsys.readouterr().err
