"""Whether a model on this machine still says what it should: a few pairs against the scores stored in the manifest."""

from dataclasses import dataclass

import numpy as np

from modelkit.cpu import usable_cpus
from modelkit.cross_encoder import CrossEncoder
from modelkit.encoder import Encoder
from modelkit.errors import ConversionError
from modelkit.manifest import Check
from modelkit.store import ModelFiles


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check and the score that this machine gave."""

    check: Check
    score: float

    @property
    def passed(self) -> bool:
        """Whether the score is within the tolerance; a score that is no number is not."""
        return abs(self.score - self.check.expected) <= self.check.tolerance


def run_checks(files: ModelFiles) -> list[CheckResult]:
    """Score the manifest's pairs with these files."""
    if "cross-encoder" in files.spec.kinds:
        model = CrossEncoder(files, usable_cpus())
        return [CheckResult(c, model.logit(model.pair(model.query(c.query), c.passage))) for c in files.spec.checks]
    encoder = Encoder(files, usable_cpus())
    results = []
    for check in files.spec.checks:
        query, passage = encoder.embed(check.query, "query").vector, encoder.embed(check.passage, "passage").vector
        results.append(CheckResult(check, float(np.dot(query, passage))))
    return results


def require_checks(files: ModelFiles) -> None:
    """Raise where a check fails.

    Raises:
        ConversionError: the message names the model, the score and what was expected.
    """
    for result in run_checks(files):
        if not result.passed:
            check = result.check
            raise ConversionError(
                f"{files.model} scores {result.score:.3f} on a stored pair where {check.expected:.3f} is expected (give or take "
                f"{check.tolerance:.2f}): it must not be used. Delete its folder and fetch again, or use another precision."
            )
