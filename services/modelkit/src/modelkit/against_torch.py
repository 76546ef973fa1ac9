"""The files that are here against the same model in torch, which lies in another environment: this one has no torch and needs none."""

import json
import subprocess
from dataclasses import replace
from importlib.resources import files as package_files
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import BaseModel, ValidationError

from modelkit.errors import ComparisonError
from modelkit.manifest import Check, ModelSpec
from modelkit.selfcheck import TOLERANCE, CheckResult, known_pairs, run_checks
from modelkit.store import ModelFiles

TIMEOUT_S = 900
EXACT = {"cross-encoder": 0.01, "embedding": 0.001, "late-interaction": 0.001}
"""How far fp32 may be from torch: other kernels round otherwise, and nothing else may differ."""


_WAY_OUT = "name an interpreter that has torch and transformers (--python), and a folder that transformers can load."


class TorchScores(BaseModel):
    """What torch says of the pairs of `known_pairs`, and the versions of the packages that say it."""

    scores: list[float]
    versions: dict[str, str]


def scores_of_torch(spec: ModelSpec, folder: Path, python: Path) -> TorchScores:
    """Have the known pairs scored, which takes seconds to start and the memory of fp32.

    Args:
        spec: the model.
        folder: the same model as transformers saves and loads it.
        python: an interpreter that has torch and transformers.

    Raises:
        ComparisonError: the interpreter cannot be run, lacks the packages, or cannot load the model.
    """
    text = (package_files("modelkit") / "torch_scores.py").read_text(encoding="utf-8")
    job = {"cross_encoder": "cross-encoder" in spec.kinds, "pairs": known_pairs(spec)}
    job |= spec.model_dump(include={"max_tokens", "pooling", "query_prefix", "passage_prefix"})
    # As text, and elsewhere: this package has a module `tokenize`, which would stand in for Python's own.
    with TemporaryDirectory() as elsewhere:
        command = [str(python.absolute()), "-c", text, str(folder.absolute())]
        try:
            result = subprocess.run(  # noqa: S603 - the interpreter that the user named
                command, input=json.dumps(job), capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=elsewhere
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ComparisonError(f"{python} could not be run ({type(error).__name__}); {_WAY_OUT}") from None
    try:
        answer = TorchScores.model_validate_json((result.stdout.strip().splitlines() or [""])[-1])
        if len(answer.scores) == len(known_pairs(spec)):
            return answer
        said = f"{len(answer.scores)} scores of {len(known_pairs(spec))} pairs"
    except ValidationError:
        said = (result.stderr.strip().splitlines() or ["it said nothing"])[-1]
    raise ComparisonError(f"{python} gave no scores of {folder}: {said[:300]}; {_WAY_OUT}")


def compare(files: ModelFiles, torch: TorchScores) -> list[CheckResult]:
    """Score the known pairs with these files; expected is what torch says."""
    kind = files.spec.kinds[0]
    tolerance = TOLERANCE[kind] if files.precision == "int8" else EXACT[kind]
    pairs = zip(known_pairs(files.spec), torch.scores, strict=True)
    checks = (Check(query=query, passage=passage, expected=score, tolerance=tolerance) for (query, passage), score in pairs)
    return run_checks(replace(files, golden=tuple(checks)))
