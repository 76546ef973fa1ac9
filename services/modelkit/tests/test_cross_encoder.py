"""The production reranker's code path, on a model of its family that is small enough to be made here."""

from pathlib import Path

import numpy as np
import pytest

from modelkit import CrossEncoder, manifest
from modelkit.cpu import Cpus
from modelkit.encoder_graph import Shape, write_encoder
from modelkit.errors import ConversionError
from modelkit.manifest import Check
from modelkit.selfcheck import require_checks, run_checks
from modelkit.store import ModelFiles

HIDDEN, WORDS, POSITIONS = 16, 32, 64


@pytest.fixture
def files(xlmr_json: Path, tmp_path: Path) -> ModelFiles:
    """A tiny XLM-R with a scoring head, under the name of bge-reranker-v2-m3."""
    rng = np.random.default_rng(0)
    sizes = {"embed.word": (WORDS, HIDDEN), "embed.position": (POSITIONS, HIDDEN), "embed.type": (1, HIDDEN)}
    sizes |= {f"0.{name}.weight": (HIDDEN, HIDDEN) for name in ("query", "key", "value", "attention_out", "up", "down")}
    sizes |= {"head.dense.weight": (HIDDEN, HIDDEN), "head.out.weight": (HIDDEN, 1)}
    weights = {name: rng.standard_normal(size).astype(np.float32) for name, size in sizes.items()}
    matrices = [name for name in sizes if name.endswith(".weight")]
    weights |= {name.replace(".weight", ".bias"): np.zeros(sizes[name][1], np.float32) for name in matrices}
    for norm in ("embed.norm", "0.attention_norm", "0.output_norm"):
        weights |= {f"{norm}.weight": np.ones(HIDDEN, np.float32), f"{norm}.bias": np.zeros(HIDDEN, np.float32)}
    write_encoder(tmp_path / "model_int8.onnx", weights, Shape(1, 2, 1e-5, "xlmr", scoring_head=True))
    (tmp_path / "tokenizer.json").write_bytes(xlmr_json.read_bytes())
    spec = manifest().get("bge-reranker-v2-m3").model_copy(update={"max_tokens": 32})
    return ModelFiles(spec, "int8", "made-here", tmp_path)


def test_a_pair_gets_one_logit(files: ModelFiles) -> None:
    """It depends on both texts, and on nothing else."""
    model = CrossEncoder(files, Cpus(2, quota_limited=True))
    query = model.query("wasser")
    first = model.logit(model.pair(query, "erde sonne"))
    assert np.isfinite(first)
    assert model.logit(model.pair(query, "mond")) != first
    assert model.logit(model.pair(model.query("sonne"), "erde sonne")) != first
    assert model.logit(model.pair(query, "erde sonne")) == first


def test_the_longest_pair_fits_the_window(files: ModelFiles) -> None:
    """Positions start at 2: a pair of max_tokens must not run past the table."""
    model = CrossEncoder(files, Cpus(1, quota_limited=False))
    pair = model.pair(model.query("wasser " * 100), "erde " * 100)
    assert len(pair) == 32
    assert pair.truncated
    assert np.isfinite(model.logit(pair))


def test_a_model_that_scores_otherwise_than_stored_is_refused(files: ModelFiles) -> None:
    """A wrong score and one that is no number."""
    logit = run_checks(_with_check(files, 0.0))[0].score
    require_checks(_with_check(files, logit))
    for expected in (logit + 0.2, float("nan")):
        with pytest.raises(ConversionError, match="must not be used"):
            require_checks(_with_check(files, expected))


def _with_check(files: ModelFiles, expected: float) -> ModelFiles:
    check = Check(query="wasser", passage="erde", expected=expected, tolerance=0.1)
    return ModelFiles(files.spec.model_copy(update={"checks": (check,)}), files.precision, files.revision, files.folder)
