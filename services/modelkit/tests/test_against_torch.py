"""Comparing with torch: what is sent to the user's interpreter, what comes back, and what the script makes of a model.

torch is not among the packages that the tests have; an interpreter and the two libraries are played.
"""

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from modelkit import torch_scores
from modelkit.against_torch import TorchScores, scores_of_torch
from modelkit.cli import app
from modelkit.errors import ComparisonError
from modelkit.manifest import manifest

E5 = manifest().get("multilingual-e5-small")
MINILM = "ms-marco-minilm-l12-v2"


def _interpreter(path: Path, body: str) -> Path:
    """An executable that is called as Python would be: `-c TEXT FOLDER`, the job on stdin."""
    path.write_text(f"#!{sys.executable}\nimport json, os, sys\n{body}\n")
    path.chmod(0o755)
    return path


def test_the_interpreter_gets_the_job_and_gives_the_scores(tmp_path: Path) -> None:
    """The pairs and how the model wants its texts; what libraries print before the answer does not matter."""
    answer = {"scores": [0.1, 0.2, 0.3], "versions": {"torch": "2"}}
    told = tmp_path / "told.json"
    python = _interpreter(
        tmp_path / "python",
        f"job = json.load(sys.stdin)\n"
        f"open({str(told)!r}, 'w').write(json.dumps([sys.argv[1], sys.argv[3], os.getcwd(), job]))\n"
        f"print('loading weights')\nprint({json.dumps(answer)!r})",
    )
    assert scores_of_torch(E5, tmp_path, python) == TorchScores(**answer)
    option, folder, where, job = json.loads(told.read_text())
    assert (option, folder) == ("-c", str(tmp_path))
    assert not (Path(where) / "tokenize.py").exists()
    assert job["pairs"] == [[check.query, check.passage] for check in E5.checks]
    assert {name: job[name] for name in ("cross_encoder", "max_tokens", "pooling", "query_prefix", "passage_prefix")} == {
        "cross_encoder": False,
        "max_tokens": 512,
        "pooling": "mean",
        "query_prefix": "query: ",
        "passage_prefix": "passage: ",
    }


def test_this_environment_has_no_torch_and_says_so(tmp_path: Path) -> None:
    """Its own interpreter is one that lacks the packages."""
    with pytest.raises(ComparisonError, match=r"No module named 'torch'; name an interpreter that has torch"):
        scores_of_torch(E5, tmp_path, Path(sys.executable))


@pytest.mark.parametrize(
    "body", ["", "print('{}')", "print('[1, 2]')", """print('{"scores": [1.0], "versions": {}}')""", "sys.exit('it broke')"]
)
def test_an_interpreter_that_gives_no_scores_is_one_sentence(tmp_path: Path, body: str) -> None:
    """It names the interpreter and the folder."""
    with pytest.raises(ComparisonError, match=f"gave no scores of {tmp_path}"):
        scores_of_torch(E5, tmp_path, _interpreter(tmp_path / "python", body))


def test_what_cannot_be_run_is_one_sentence(tmp_path: Path) -> None:
    """A file that is no program."""
    (tmp_path / "python").write_text("")
    with pytest.raises(ComparisonError, match="could not be run"):
        scores_of_torch(E5, tmp_path, tmp_path / "python")


@pytest.mark.parametrize("models", [[], ["multilingual-e5-small", MINILM]])
def test_one_model_and_an_interpreter_have_to_be_named(models: list[str], tmp_path: Path) -> None:
    """The folder holds one model."""
    python = ["--python", sys.executable]
    for arguments in ([*models, *python], [MINILM]):
        result = CliRunner().invoke(app, ["verify", *arguments, "--against-torch", str(tmp_path), "--cache-dir", str(tmp_path)])
        assert result.exit_code == 2
        assert "name one model" in result.output


def test_what_nobody_could_verify_is_said_to_be_open(tmp_path: Path) -> None:
    """bge-reranker-v2-m3 has no stored scores."""
    result = CliRunner().invoke(app, ["verify", "bge-reranker-v2-m3", "--cache-dir", str(tmp_path)])
    assert "bge-reranker-v2-m3: open; it is not here, and no scores of it are stored" in result.output
    assert result.exit_code == 1


@pytest.mark.models
@pytest.mark.parametrize(("scores", "status", "verdict"), [([8.66, -11.3], 0, "as in torch"), ([8.66, -9.3], 1, "not as in torch")])
def test_real_weights_are_held_to_what_torch_says(tmp_path: Path, scores: list[float], status: int, verdict: str) -> None:
    """Each score stands beside the expected one; a difference is a failure."""
    answer = json.dumps({"scores": scores, "versions": {"torch": "2", "transformers": "4"}})
    python = _interpreter(tmp_path / "python", f"print({answer!r})")
    result = CliRunner().invoke(app, ["verify", MINILM, "--against-torch", str(tmp_path), "--python", str(python)])
    assert result.exit_code == status
    assert f"{MINILM} (int8): {verdict}; expected by torch 2, transformers 4" in result.output


class _Vector(np.ndarray[Any, Any]):
    """Enough of a tensor."""

    def mean(self, axis: int) -> Any:  # type: ignore[override]
        return np.mean(np.asarray(self), axis)


def _play_libraries(monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, ...]]) -> None:
    """A model whose states of a text are [length, 1] for its first token and [0, 1] for its last, and whose logit is the length."""

    def tokenize(*texts: str, **_: object) -> dict[str, int]:
        asked.append(texts)
        return {"length": sum(map(len, texts))}

    def model(length: int) -> SimpleNamespace:
        states = np.array([[float(length), 1.0], [0.0, 1.0]]).view(_Vector)
        return SimpleNamespace(last_hidden_state=[states], logits=[[float(length)]])

    def normalize(vector: Any, dim: int) -> Any:
        return np.asarray(vector) / np.linalg.norm(np.asarray(vector), axis=dim)

    torch, transformers = ModuleType("torch"), ModuleType("transformers")
    loaded = SimpleNamespace(from_pretrained=lambda *_, **__: SimpleNamespace(eval=lambda: model))
    for module in (torch, transformers):
        module.__dict__["__version__"] = "1"
        monkeypatch.setitem(sys.modules, module.__name__, module)
    torch.__dict__.update(no_grad=nullcontext, float32=None, nn=SimpleNamespace(functional=SimpleNamespace(normalize=normalize)))
    transformers.__dict__.update(
        AutoModel=loaded,
        AutoModelForSequenceClassification=loaded,
        AutoTokenizer=SimpleNamespace(from_pretrained=lambda *_, **__: tokenize),
    )


JOB = {"max_tokens": 9, "query_prefix": "q:", "passage_prefix": "p:", "pairs": [["a", "bcd"]]}


@pytest.mark.parametrize(
    ("kind", "expected", "texts"),
    [
        ({"cross_encoder": True, "pooling": None}, 4.0, [("a", "bcd")]),
        ({"cross_encoder": False, "pooling": "cls"}, 16 / np.sqrt(10 * 26), [("q:a",), ("p:bcd",)]),
        ({"cross_encoder": False, "pooling": "mean"}, 4.75 / np.sqrt(3.25 * 7.25), [("q:a",), ("p:bcd",)]),
    ],
)
def test_the_script_scores_as_the_model_is_made(
    kind: dict[str, Any], expected: float, texts: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cross-encoder reads both texts as they are; an embedding model each with its prefix, and its pooling counts."""
    asked: list[tuple[str, ...]] = []
    _play_libraries(monkeypatch, asked)
    torch_scores.main("folder", JOB | kind)
    answer = TorchScores.model_validate_json(capsys.readouterr().out)
    assert answer.scores == pytest.approx([expected])
    assert asked == texts
