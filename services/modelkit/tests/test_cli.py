"""The command, on a cache that is empty, sound or damaged."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from modelkit import cli, ensure
from modelkit.cli import app
from modelkit.manifest import manifest

RUNNER = CliRunner()
MINILM = "ms-marco-minilm-l12-v2"


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the environment nor a `.env` in the folder where pytest was started."""
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    for name in ("MODEL_CACHE_DIR", "CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_list_shows_every_model(tmp_path: Path) -> None:
    """With licence and source, and what is not here."""
    result = RUNNER.invoke(app, ["list", "--cache-dir", str(tmp_path)])
    assert result.exit_code == 0
    for model_id in manifest().models:
        assert model_id in result.output
    assert "here" not in result.output.replace("not fetched", "").replace("Here", "").split("Files are")[0]
    assert str(tmp_path) in result.output


def test_path_of_a_model_that_is_not_here_says_how_to_get_it(tmp_path: Path) -> None:
    """And the cache folder has a path in any case."""
    assert RUNNER.invoke(app, ["path", "--cache-dir", str(tmp_path)]).output.strip() == str(tmp_path)
    result = RUNNER.invoke(app, ["path", MINILM, "--cache-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert f"knowledge-models fetch {MINILM}" in result.output


def test_the_setting_names_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MODEL_CACHE_DIR, as for the services."""
    monkeypatch.setenv("MODEL_CACHE_DIR", str(tmp_path))
    assert RUNNER.invoke(app, ["path"]).output.strip() == str(tmp_path)


def test_verify_of_an_empty_cache_fails_with_a_way_out(tmp_path: Path) -> None:
    """Nothing verified is not success."""
    result = RUNNER.invoke(app, ["verify", "--cache-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "knowledge-models fetch" in result.output


@pytest.mark.parametrize("given", ["onnx/model.onnx", "onnx/model.onnx=123", "onnx/model.onnx=" + "g" * 64])
def test_a_hash_that_is_none_is_refused(given: str) -> None:
    """Before anything is fetched."""
    result = RUNNER.invoke(app, ["fetch", "bge-reranker-v2-m3", "--hash", given])
    assert result.exit_code == 2


def test_an_error_is_one_sentence_and_status_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """No traceback."""
    monkeypatch.setattr("sys.argv", ["knowledge-models", "fetch", "no-such-model"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 1
    assert capsys.readouterr().err.startswith("knowledge-models: there is no model 'no-such-model'")


@pytest.mark.models
def test_verify_finds_what_is_sound_and_what_is_damaged(tmp_path: Path) -> None:
    """Hashes and stored scores."""
    files = ensure(MINILM)
    folder = tmp_path / MINILM / files.folder.name
    shutil.copytree(files.folder, folder)
    arguments = ["verify", MINILM, "--cache-dir", str(tmp_path)]
    sound = RUNNER.invoke(app, arguments)
    assert sound.exit_code == 0
    assert "2 of 2 stored scores met" in sound.output
    with (folder / "tokenizer.json").open("ab") as file:
        file.write(b" ")
    damaged = RUNNER.invoke(app, arguments)
    assert damaged.exit_code == 1
    assert "tokenizer.json is damaged" in damaged.output
    assert RUNNER.invoke(app, ["fetch", MINILM]).exit_code == 0
    assert RUNNER.invoke(app, ["path", MINILM]).output.strip() == str(files.folder)
