"""The choice of a precision: every way it can go, with files that are only named; and the true one on real weights."""

import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from modelkit import ensure, files_to_serve
from modelkit.cpu import Arithmetic
from modelkit.errors import DamagedFileError, ModelError, UnavailableError, UnverifiedFileError, WrongScoreError
from modelkit.manifest import Check, Precision, manifest
from modelkit.precision import Choice, Shelf, Trial
from modelkit.selfcheck import CheckResult
from modelkit.store import QUANTIZED, ModelFiles, Receipt, sha256_of, write_receipt

VNNI, PLAIN = Arithmetic(int8_pays=True, saturates=False), Arithmetic(int8_pays=False, saturates=True)
BF16 = Arithmetic(int8_pays=True, saturates=False, bf16_pays=True)
CHECK = Check(query="a secret question", passage="a secret passage", expected=0.8, tolerance=0.02)
MODEL = "multilingual-e5-small"


class Played:
    """A shelf and a trial: what is here, what can be had, what scores how, and how long it takes.

    Args:
        here: precisions in the cache.
        gone: what fetching a precision ends with; the others can be had.
        scores: of the one check, by precision; 0.8 is right.
        seconds: of a pair, by precision.
        known: precisions of the model.
        openvino: whether that is installed.
    """

    def __init__(
        self,
        *here: Precision,
        gone: dict[Precision, ModelError] | None = None,
        scores: dict[Precision, float] | None = None,
        seconds: dict[Precision, float] | None = None,
        known: tuple[Precision, ...] = ("int8", "fp32"),
        openvino: bool = True,
    ) -> None:
        self.openvino = openvino
        self.here, self.gone, self.scores, self.seconds, self.known = set(here), gone or {}, scores or {}, seconds or {}, known
        self.fetched: list[Precision] = []
        self.logs: list[dict[str, object]] = []

    def choose(self, wanted: str, processor: Arithmetic) -> str:
        """The precision that comes out."""
        shelf = Shelf(self.known, lambda precision: self._files(precision) if precision in self.here else None, self._get)
        trial = Trial(self._checks, lambda files: self.seconds[files.precision], openvino=self.openvino)
        with capture_logs() as logs:
            try:
                return Choice(manifest().get(MODEL), shelf, trial, processor).files(wanted).precision
            finally:
                self.logs = [dict(entry) for entry in logs]

    def _get(self, precision: Precision) -> ModelFiles:
        if precision not in self.here:
            if precision in self.gone:
                raise self.gone[precision]
            self.fetched.append(precision)
        return self._files(precision)

    def _files(self, precision: Precision) -> ModelFiles:
        return ModelFiles(manifest().get(MODEL), precision, "1", Path("cache"))

    def _checks(self, files: ModelFiles) -> list[CheckResult]:
        return [CheckResult(CHECK, self.scores.get(files.precision, 0.8), CHECK.tolerance)]


def test_what_the_processor_promises_is_fetched_where_nothing_is_here() -> None:
    """int8 with the instructions for it, fp32 without."""
    with_vnni, without = Played(), Played()
    assert with_vnni.choose("auto", VNNI) == "int8"
    assert without.choose("auto", PLAIN) == "fp32"
    assert (with_vnni.fetched, without.fetched) == (["int8"], ["fp32"])
    assert [entry["event"] for entry in with_vnni.logs] == ["precision.chosen"]


@pytest.mark.parametrize("processor", [VNNI, PLAIN])
@pytest.mark.parametrize("only", ["int8", "fp32"])
def test_what_is_here_is_used_and_nothing_is_fetched(only: Precision, processor: Arithmetic) -> None:
    """An image or a volume that holds one precision decides."""
    played = Played(only)
    assert played.choose("auto", processor) == only
    assert played.fetched == []


@pytest.mark.parametrize(("int8_s", "fp32_s", "expected"), [(0.1, 0.3, "int8"), (0.3, 0.1, "fp32")])
@pytest.mark.parametrize("processor", [VNNI, PLAIN])
def test_of_two_that_are_here_time_decides(int8_s: float, fp32_s: float, expected: str, processor: Arithmetic) -> None:
    """Whatever the processor promises; the log names both times."""
    played = Played("int8", "fp32", seconds={"int8": int8_s, "fp32": fp32_s})
    assert played.choose("auto", processor) == expected
    (entry,) = played.logs
    assert (entry["event"], entry["int8_ms"], entry["fp32_ms"]) == ("precision.chosen", int8_s * 1000, fp32_s * 1000)


ALL: tuple[Precision, ...] = ("int8", "fp32", "bf16", "int8-static", "int8-weights")
SECONDS: dict[Precision, float] = {"int8": 0.3, "fp32": 0.9, "bf16": 0.2, "int8-static": 0.1, "int8-weights": 0.25}


@pytest.mark.parametrize(
    ("here", "scores", "processor", "expected"),
    [
        (ALL, {}, BF16, "int8-static"),
        (("bf16",), {}, BF16, "bf16"),
        (("int8", "bf16"), {}, VNNI, "int8"),
        (ALL, {"int8-static": 0.1}, BF16, "bf16"),
        (("int8", "bf16"), {"bf16": 0.1}, BF16, "int8"),
        (("int8", "bf16"), {"int8": 0.1}, BF16, "bf16"),
        (("int8", "bf16"), {"int8": 0.1, "bf16": 0.1}, BF16, "fp32"),
    ],
)
def test_what_was_made_for_openvino_is_timed_too_where_it_is_sound(
    here: tuple[Precision, ...], scores: dict[Precision, float], processor: Arithmetic, expected: str
) -> None:
    """One that scores wrongly, or that the processor has no instructions for, is left out; the others count as ever."""
    played = Played(*here, scores=scores, seconds=SECONDS, known=ALL)
    assert played.choose("auto", processor) == expected
    left_out = {entry["precision"] for entry in played.logs if entry["event"] in ("precision.left_out", "precision.fell_back")}
    assert left_out <= set(scores) | {"fp32"}


def test_without_openvino_its_files_do_not_count() -> None:
    """Not with `auto`, and asked for by name the sentence says what to install."""
    assert Played(*ALL, seconds=SECONDS, known=ALL, openvino=False).choose("auto", BF16) == "int8"
    with pytest.raises(UnavailableError, match=r"install knowledge-reranker\[openvino\].*RERANK_PRECISION"):
        Played(*ALL, known=ALL, openvino=False).choose("int8-static", BF16)


def test_bf16_is_refused_without_its_instructions() -> None:
    """It would be computed in 32 bits, slower than as fp32."""
    with pytest.raises(UnavailableError, match="no instructions for it"):
        Played(*ALL, known=ALL).choose("bf16", VNNI)


@pytest.mark.parametrize("error", [UnavailableError("no network."), UnverifiedFileError("no hash.")])
def test_the_other_is_taken_where_the_promised_one_cannot_be_had(error: ModelError) -> None:
    """And told why."""
    played = Played(gone={"fp32": error})
    assert played.choose("auto", PLAIN) == "int8"
    assert played.logs[0]["event"] == "precision.not_there"
    assert played.logs[0]["detail"] == str(error)


def test_where_nothing_can_be_had_the_first_error_counts() -> None:
    """It is the one about the precision that should have been."""
    played = Played(gone={"int8": UnavailableError("first."), "fp32": UnavailableError("second.")})
    with pytest.raises(UnavailableError, match="first"):
        played.choose("auto", VNNI)


@pytest.mark.parametrize("here", [("int8",), ("int8", "fp32"), ()])
def test_wrong_scores_of_int8_fall_back_to_fp32_with_one_line(here: tuple[Precision, ...]) -> None:
    """Whether fp32 is here or has to be fetched; both scores stand in the line, and no text."""
    played = Played(*here, scores={"int8": 0.7})
    assert played.choose("auto", VNNI) == "fp32"
    (entry,) = played.logs
    assert entry["event"] == "precision.fell_back"
    assert (entry["score"], entry["expected"], entry["instead_of"]) == (0.7, 0.8, "int8")
    assert "secret" not in str(played.logs)


@pytest.mark.parametrize(
    ("played", "reason"),
    [
        (Played("int8", scores={"int8": 0.7}, gone={"fp32": UnavailableError("no network.")}), "fp32 cannot be had: no network"),
        (Played("int8", scores={"int8": 0.7}, known=("int8",)), "there is no fp32 of it"),
        (Played("int8", scores={"int8": float("nan")}, known=("int8",)), "there is no fp32 of it"),
        (Played("fp32", scores={"fp32": 0.7}), "fp32 is what the others are measured by"),
        (Played("int8", scores={"int8": 0.7, "fp32": 0.6}), "fails too"),
    ],
)
def test_without_a_sound_fp32_the_service_refuses_to_start(played: Played, reason: str) -> None:
    """The sentence names model, precision, scores and two ways out."""
    with pytest.raises(WrongScoreError, match=reason) as caught:
        played.choose("auto", VNNI)
    message = str(caught.value)
    assert all(part in message for part in (MODEL, "where 0.8000 is expected", "fetch it again", "RERANK_PRECISION"))
    assert "secret" not in message


def test_what_was_asked_for_is_checked_and_never_replaced() -> None:
    """Neither by a faster one nor by a sound one."""
    assert Played("int8", "fp32").choose("fp32", VNNI) == "fp32"
    assert Played().choose("int8", PLAIN) == "int8"
    with pytest.raises(WrongScoreError, match="nothing else was asked for"):
        Played("int8", "fp32", scores={"int8": 0.7}).choose("int8", VNNI)


def test_a_damaged_file_is_never_passed_over() -> None:
    """It is no reason to take another precision: somebody has to look."""
    with pytest.raises(DamagedFileError):
        Played(gone={"int8": DamagedFileError(Path("model_int8.onnx"), expected="a", found="b")}).choose("auto", VNNI)


@pytest.mark.models
def test_real_weights_are_checked_and_timed() -> None:
    """Whatever is here of E5 and of MiniLM scores as it should, and one of it is chosen."""
    for model in (MODEL, "ms-marco-minilm-l12-v2"):
        with capture_logs() as logs:
            files = files_to_serve(model, "auto")
        chosen = [entry for entry in logs if entry["event"] == "precision.chosen"]
        assert [(entry["precision"], entry["checks"]) for entry in chosen] == [(files.precision, len(files.spec.checks))]


@pytest.mark.models
def test_real_weights_fall_back_to_fp32(tmp_path: Path) -> None:
    """int8 made here that does not say what its fp32 said, and fp32 that does."""
    full, int8 = ensure(MODEL, precision="fp32"), ensure(MODEL, precision="int8")
    folder = tmp_path / MODEL / full.folder.name
    shutil.copytree(full.folder, folder)
    (folder / "receipt-int8.json").unlink()
    made = folder.with_name(folder.name + QUANTIZED)
    made.mkdir()
    for file in (int8.model, int8.tokenizer):
        shutil.copy(file, made)
    golden = tuple(check.model_copy(update={"expected": check.expected - 0.1}) for check in int8.spec.checks)
    hashes = {file.name: sha256_of(made / file.name) for file in (int8.model, int8.tokenizer)}
    revision = full.revision + QUANTIZED
    write_receipt(made, Receipt(model=MODEL, revision=revision, precision="int8", source="a test", files=hashes, golden=golden))
    with capture_logs() as logs:
        files = files_to_serve(MODEL, "auto", tmp_path)
    assert (files.precision, files.folder) == ("fp32", folder)
    (entry,) = logs
    assert (entry["event"], entry["precision"], entry["instead_of"]) == ("precision.fell_back", "fp32", "int8")
    assert abs(entry["score"] - entry["expected"]) > entry["tolerance"]
    with pytest.raises(WrongScoreError, match="nothing else was asked for"):
        files_to_serve(MODEL, "int8", tmp_path)
