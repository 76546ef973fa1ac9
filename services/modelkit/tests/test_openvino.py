"""Files for OpenVINO: made of a small cross-encoder and of real weights, and run as those of ONNX Runtime are."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from modelkit import CrossEncoder, Encoder, ModelFiles, ensure, quantization, usable_cpus
from modelkit.cli import app
from modelkit.cpu import Cpus
from modelkit.errors import ConversionError, DamagedFileError, UnavailableError
from modelkit.manifest import OPENVINO, Precision
from modelkit.openvino_graph import openvino_graph
from modelkit.openvino_session import STEP, OpenVinoModel, padded
from modelkit.progress import LineProgress
from modelkit.quantization import quantize, quantized
from modelkit.quantize_graph import quantize_graph
from modelkit.selfcheck import run_checks
from modelkit.session import OnnxModel, RunFailed, RunTerminated, Session, Stop, open_session
from modelkit.store import read_receipt
from modelkit.undo_int8 import undo_int8

QUIET = LineProgress(lambda _: None)
TWO = Cpus(2, quota_limited=False)
PAIRS = [("wasser sonne", "erde mond " * (1 + number % 20)) for number in range(30)]
LENGTHS = (3, 31, 32, 33, 100)


def _ids(length: int) -> np.ndarray:
    return np.random.default_rng(length).integers(3, 40, length)


@pytest.fixture
def model(full: ModelFiles, tmp_path: Path) -> OpenVinoModel:
    """The small cross-encoder, in 32 bits so that it can be compared."""
    openvino_graph(full.model, tmp_path / "model.xml", "bf16")
    return OpenVinoModel(tmp_path / "model.xml", TWO, bf16=False)


def test_a_score_does_not_depend_on_the_padding(full: ModelFiles, model: OpenVinoModel) -> None:
    """As of ONNX Runtime, which needs none; weights of 16 bits differ a little."""
    reference = OnnxModel(full.model, TWO)
    for length in LENGTHS:
        ids = _ids(length)
        assert padded(ids, ids)["input_ids"].shape == (1, -(-length // STEP) * STEP)
        np.testing.assert_allclose(model.run(ids, ids), reference.run(ids, ids), atol=5e-3)


def test_runs_beside_each_other_give_what_they_give_alone(model: OpenVinoModel) -> None:
    """To the last bit, from as many threads as there are cores and more."""
    model.prepare(128)
    alone = [model.run(_ids(length), _ids(length)) for length in LENGTHS]
    with ThreadPoolExecutor(4) as pool:
        beside = list(pool.map(lambda length: model.run(_ids(length), _ids(length)), LENGTHS * 20))
    assert all(np.array_equal(found, alone[number % len(LENGTHS)]) for number, found in enumerate(beside))


def test_a_run_that_was_stopped_before_does_not_count(model: OpenVinoModel) -> None:
    """What ended it does not end the next one."""
    expected, before = model.run(_ids(9), _ids(9)), Stop()
    before.request()
    for _ in range(20):
        with pytest.raises(RunTerminated):
            model.run(_ids(9), _ids(9), before)
        assert np.array_equal(model.run(_ids(9), _ids(9), Stop()), expected)


def test_a_failure_is_told_without_its_message(model: OpenVinoModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may name token ids."""

    class Broken:
        cancel = start_async = wait = lambda *_: None

        def get_output_tensor(self, _: int) -> None:
            raise RuntimeError("ids 17 18 19")

    monkeypatch.setattr(model, "_request", Broken)
    with pytest.raises(RunFailed, match=r"^RuntimeError$"):
        model.run(_ids(9), _ids(9))


@pytest.mark.parametrize("precision", OPENVINO)
def test_each_opening_gives_the_same_scores(precision: Precision, full: ModelFiles, tmp_path: Path) -> None:
    """With two runs at once, at each length for the first time: weights in 8 bits that both shared gave others now and then."""
    files, lengths = quantize(full, tmp_path / "cache", QUIET, precision, PAIRS), (5, 40, 70, 5)

    def scores(model: Session) -> list[float]:
        return [float(model.run(_ids(length), _ids(length))[0]) for length in lengths]

    found = set()
    for _ in range(8):
        with ThreadPoolExecutor(2) as pool:
            found.update(tuple(each) for each in pool.map(scores, [open_session(files, TWO)] * 2))
    assert len(found) == 1


@pytest.mark.parametrize("precision", OPENVINO)
def test_each_precision_is_made_kept_and_checked(precision: Precision, full: ModelFiles, tmp_path: Path) -> None:
    """Both of its files stand in the receipt, with what made them; a second time nothing is made."""
    cache = tmp_path / "cache"
    files = quantize(full, cache, QUIET, precision, PAIRS)
    assert all(result.passed for result in run_checks(files))
    assert isinstance(open_session(files, TWO), OpenVinoModel)
    receipt = read_receipt(files.folder, precision)
    assert receipt is not None
    assert set(receipt.files) == {f"model_{precision}.xml", f"model_{precision}.bin", "tokenizer.json"}
    assert set(receipt.tools) == {"openvino", "numpy"} | (set() if precision == "bf16" else {"nncf"})
    assert quantize(full, cache, QUIET, precision, PAIRS) == files == quantized(full.spec, cache, precision)
    with files.model.with_suffix(".bin").open("ab") as file:
        file.write(b" ")
    with pytest.raises(DamagedFileError, match=r"\.bin is damaged"):
        quantized(full.spec, cache, precision)


def test_static_ranges_take_pairs(full: ModelFiles, tmp_path: Path) -> None:
    """The sentence says how many and names two ways out."""
    with pytest.raises(ConversionError, match=r"29 were given, fewer than 30\. .*--pairs FILE.*bf16 or int8-weights"):
        quantize(full, tmp_path / "cache", QUIET, "int8-static", PAIRS[:29])


def test_what_is_too_far_off_is_not_kept(full: ModelFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither graph nor weights."""
    golden = tuple(check.model_copy(update={"expected": check.expected + 10}) for check in quantization.golden_checks(full))
    monkeypatch.setattr(quantization, "golden_checks", lambda _: golden)
    with pytest.raises(ConversionError, match="it is not kept"):
        quantize(full, tmp_path / "cache", QUIET, "bf16")
    assert not list((tmp_path / "cache").rglob("model_bf16*"))


def test_int8_undone_is_the_graph_with_the_rounded_weights(full: ModelFiles, tmp_path: Path) -> None:
    """Nearer to fp32 than int8 is, as only weights are rounded; a graph that is not quantised is refused."""
    quantize_graph(full.model, tmp_path / "int8.onnx")
    undo_int8(tmp_path / "int8.onnx", tmp_path / "undone.onnx")
    exact, int8, undone = (OnnxModel(path, TWO) for path in (full.model, tmp_path / "int8.onnx", tmp_path / "undone.onnx"))
    inputs = [_ids(length) for length in range(3, 60)]
    off = [sum(abs(float(each.run(ids, ids)[0] - exact.run(ids, ids)[0])) for ids in inputs) for each in (int8, undone)]
    assert 0 < off[1] < off[0]
    with pytest.raises(ValueError, match="not dynamically quantised"):
        undo_int8(full.model, tmp_path / "no.onnx")


def test_without_the_package_a_sentence_says_what_to_install(full: ModelFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When files are opened, and when they are to be made."""
    files = quantize(full, tmp_path / "cache", QUIET, "bf16")
    monkeypatch.setitem(sys.modules, "modelkit.openvino_session", None)
    with pytest.raises(UnavailableError, match=r"install knowledge-modelkit\[openvino\]"):
        open_session(files, TWO)
    monkeypatch.setattr("modelkit.conversion.find_spec", lambda name: None if name == "nncf" else name)
    with pytest.raises(ConversionError, match=r"not installed \(nncf\)\. Install knowledge-modelkit\[quantize\]"):
        quantize(full, tmp_path / "cache", QUIET, "int8-weights")


def test_pairs_are_read_with_the_number_of_a_wrong_line(tmp_path: Path) -> None:
    """Before anything is fetched."""
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(json.dumps({"query": "a", "passage": "b"}) + '\n{"query": "a"}\n')
    result = CliRunner().invoke(app, ["quantize", "ms-marco-minilm-l12-v2", "--to", "int8-static", "--pairs", str(pairs)])
    assert result.exit_code == 2
    assert "line 2 is no object" in " ".join(result.output.split())


@pytest.mark.models
@pytest.mark.parametrize("precision", ["bf16", "int8-weights"])
def test_real_weights_of_a_model_that_comes_as_int8_alone(precision: Precision, tmp_path: Path) -> None:
    """MiniLM: logits as near to those of its weights in fp32 as the rounding explains, and the same order."""
    files = quantize(ensure("ms-marco-minilm-l12-v2"), tmp_path, QUIET, precision)
    model, reference = CrossEncoder(files, usable_cpus()), CrossEncoder(ensure("ms-marco-minilm-l12-v2"), usable_cpus())
    texts = [check.passage for check in files.spec.checks] + ["Berlin is a city.", "Water boils at 100 degrees. " * 20]
    query = model.query(files.spec.checks[0].query)
    made, before = ([each.logit(each.pair(query, text)) for text in texts] for each in (model, reference))
    assert np.abs(np.array(made) - before).max() < 0.3
    assert list(np.argsort(made)) == list(np.argsort(before))


@pytest.mark.models
def test_a_long_run_is_ended_within_itself(tmp_path: Path, stop_within: Stop) -> None:
    """MiniLM over its whole window, stopped at its very beginning; the next run of the same request gives what it gave before."""
    files = quantize(ensure("ms-marco-minilm-l12-v2"), tmp_path, QUIET, "bf16")
    model, ids = open_session(files, TWO), np.ones(files.spec.max_tokens, np.int64)
    expected = model.run(ids, ids)
    for _ in range(20):
        with pytest.raises(RunTerminated):
            model.run(ids, ids, stop_within)
        stop_within.requested = False
        assert np.array_equal(model.run(ids, ids), expected)


@pytest.mark.models
def test_real_weights_of_late_interaction(tmp_path: Path) -> None:
    """E5 in bf16: the vector of each of the text's own tokens, and none of the padding."""
    full = ensure("multilingual-e5-small", precision="fp32")
    made, exact = (Encoder(files, usable_cpus()) for files in (quantize(full, tmp_path, QUIET, "bf16"), full))
    tokens = exact.tokenize("Die Monstera braucht einmal in der Woche Wasser.", "passage")
    found, expected = made.token_vectors(tokens), exact.token_vectors(tokens)
    assert found.shape == expected.shape
    assert (found * expected).sum(axis=1).min() > 0.99


def test_the_runtime_reports_nothing_to_its_makers() -> None:
    """What would send is a stub of its own package, here and where files are made."""
    ask = (
        "import modelkit.openvino_graph, nncf.telemetry.wrapper as w, openvino.tools.ovc as o; print(type(w.telemetry), type(o.telemetry))"
    )
    told = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout
    assert "MagicMock" in told
    assert "telemetry_stub" in told
    assert sys.modules["openvino_telemetry"] is None
