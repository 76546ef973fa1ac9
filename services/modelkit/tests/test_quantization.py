"""int8 from fp32: a small cross-encoder made here, and the real weights of E5."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from modelkit import Encoder, ModelFiles, ensure, quantization, usable_cpus
from modelkit.cli import app
from modelkit.errors import ConversionError, DamagedFileError, UnavailableError
from modelkit.manifest import ModelSpec, PrecisionSpec, manifest
from modelkit.precision import open_shelf
from modelkit.progress import LineProgress
from modelkit.quantization import golden_checks, quantize, quantized
from modelkit.selfcheck import pair_scorer, run_checks
from modelkit.store import read_receipt

QUIET = LineProgress(lambda _: None)


def test_scores_of_fp32_are_kept_with_int8_and_checked(full: ModelFiles, tmp_path: Path) -> None:
    """And the versions of what made it; a second time nothing is made."""
    cache = tmp_path / "cache"
    assert quantized(full.spec, cache) is None
    files = quantize(full, cache, QUIET)
    score = pair_scorer(full)
    assert [check.expected for check in files.checks] == [score(check.query, check.passage) for check in files.checks]
    assert len(files.checks) == 3
    assert files.model.stat().st_size < full.model.stat().st_size
    assert all(result.passed and result.score != result.check.expected for result in run_checks(files))
    receipt = read_receipt(files.folder, "int8")
    assert receipt is not None
    assert set(receipt.tools) == {"onnx", "onnxruntime", "numpy"}
    made_at = files.model.stat().st_mtime_ns
    assert quantize(full, cache, QUIET) == files == quantized(full.spec, cache)
    assert files.model.stat().st_mtime_ns == made_at
    assert {path.name for path in files.folder.iterdir()} == {".lock", "model_int8.onnx", "tokenizer.json", "receipt-int8.json"}


def test_it_is_used_where_nobody_offers_int8(full: ModelFiles, tmp_path: Path) -> None:
    """Before it is made the sentence names the command."""
    cache = tmp_path / "cache"
    shelf = open_shelf(full.spec, cache, QUIET)
    assert {"fp32", "int8"} < set(shelf.known)
    assert shelf.cached("int8") is None
    with pytest.raises(UnavailableError, match="knowledge-models quantize bge-reranker-v2-m3"):
        shelf.get("int8")
    files = quantize(full, cache, QUIET)
    assert shelf.cached("int8") == shelf.get("int8") == files


def test_a_file_that_was_changed_is_not_opened(full: ModelFiles, tmp_path: Path) -> None:
    """Its hash stands in the receipt."""
    files = quantize(full, tmp_path / "cache", QUIET)
    with files.model.open("ab") as file:
        file.write(b" ")
    with pytest.raises(DamagedFileError, match=r"model_int8\.onnx is damaged"):
        quantized(full.spec, tmp_path / "cache")


def test_files_of_an_older_revision_are_not_taken(full: ModelFiles, tmp_path: Path) -> None:
    """Commits are cut in the folder's name, so the receipt's revision counts."""
    quantize(full, tmp_path / "cache", QUIET)
    other = full.spec.model_copy(update={"precisions": {"fp32": PrecisionSpec(revision="2", sources=())}})
    (tmp_path / "cache" / full.spec.id / "1-quantized").rename(tmp_path / "cache" / full.spec.id / "2-quantized")
    assert quantized(other, tmp_path / "cache") is None


def _too_far(full: ModelFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    golden = golden_checks(full)
    moved = tuple(check.model_copy(update={"expected": check.expected + 10}) for check in golden)
    monkeypatch.setattr(quantization, "golden_checks", lambda _: moved)


def _no_model(full: ModelFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    golden = golden_checks(full)
    full.model.write_bytes(b"no model")
    monkeypatch.setattr(quantization, "golden_checks", lambda _: golden)


@pytest.mark.parametrize(("spoil", "message"), [(_too_far, "not kept"), (_no_model, "converting model_fp32.onnx to .* failed")])
def test_what_goes_wrong_leaves_nothing(
    full: ModelFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[ModelFiles, pytest.MonkeyPatch], None], message: str
) -> None:
    """Neither scores that are too far off nor a file that is no model."""
    spoil(full, monkeypatch)
    with pytest.raises(ConversionError, match=message):
        quantize(full, tmp_path / "cache", QUIET)
    assert not (tmp_path / "cache" / full.spec.id / "1-quantized" / "model_int8.onnx").exists()
    assert quantized(full.spec, tmp_path / "cache") is None


@pytest.mark.parametrize(
    ("arguments", "status", "message"), [(["--to", "int4"], 2, "can be made into"), (["--hash", "a=b"], 2, "64 hex digits")]
)
def test_the_command_refuses_what_it_cannot_do(arguments: list[str], status: int, message: str, tmp_path: Path) -> None:
    """Before anything is fetched."""
    result = CliRunner().invoke(app, ["quantize", "bge-reranker-v2-m3", "--cache-dir", str(tmp_path), *arguments])
    assert result.exit_code == status
    assert message in result.output


QUESTIONS = ("Wie oft muss ich eine Monstera gießen?", "How do I repot a cactus?", "Wann fährt der Zug nach Hamburg?")
PASSAGES = (
    "Die Monstera braucht etwa einmal in der Woche Wasser.",
    "A cactus is moved to a new pot in spring, with gloves and dry soil.",
    "Der Zug nach Hamburg fährt um acht Uhr von Gleis sieben ab.",
    "Insurance pays for damage by water, but not for neglect.",
)


@pytest.mark.models
def test_real_weights_keep_scores_and_order(tmp_path: Path) -> None:
    """A dozen pairs of E5: cosines within the tolerance, and the same passage first for each question."""
    full = ensure("multilingual-e5-small", precision="fp32")
    made = quantize(full, tmp_path, QUIET)
    vectors: dict[str, dict[str, np.ndarray]] = {}
    for files in (full, made):
        encoder = Encoder(files, usable_cpus())
        vectors[files.precision] = {
            "query": np.stack([encoder.embed(text, "query").vector for text in QUESTIONS]),
            "passage": np.stack([encoder.embed(text, "passage").vector for text in PASSAGES]),
        }
    fp32, int8 = (vectors[precision]["query"] @ vectors[precision]["passage"].T for precision in ("fp32", "int8"))
    assert np.abs(fp32 - int8).max() < 0.02
    assert list(int8.argmax(axis=1)) == list(fp32.argmax(axis=1)) == [0, 1, 2]
    assert quantized(_spec(), tmp_path) == made


def _spec() -> ModelSpec:
    return manifest().get("multilingual-e5-small")
