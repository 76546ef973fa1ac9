"""Whether a model on this machine still says what it should: a few pairs against scores that were stored; and how fast it says it."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from modelkit.cpu import Arithmetic, this_arithmetic, usable_cpus
from modelkit.cross_encoder import CrossEncoder
from modelkit.encoder import Encoder
from modelkit.errors import ConversionError
from modelkit.manifest import Check, ModelSpec, manifest
from modelkit.store import ModelFiles

PASSAGE_REPEATS = 6
"""Makes of a stored sentence a passage of about 500 characters, as they are served."""
TIMED_RUNS = 3
TOLERANCE = {"cross-encoder": 0.6, "embedding": 0.02, "late-interaction": 0.02}
"""How far int8 may be from fp32 where the manifest does not say it: of a logit, and of a cosine."""

ScorePair = Callable[[str, str], float]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check, the score that this machine gave, and the tolerance that its processor is allowed."""

    check: Check
    score: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether the score is within the tolerance; a score that is no number is not."""
        return abs(self.score - self.check.expected) <= self.tolerance

    @property
    def sentence(self) -> str:
        """The figures, as part of a sentence."""
        return f"{self.score:.4f} where {self.check.expected:.4f} is expected (give or take {self.tolerance:g})"


def pair_scorer(files: ModelFiles) -> ScorePair:
    """Opens the model; gives the score of query and passage: a logit, or the cosine of their vectors."""
    if "cross-encoder" in files.spec.kinds:
        model = CrossEncoder(files, usable_cpus())
        return lambda query, passage: model.logit(model.pair(model.query(query), passage))
    encoder = Encoder(files, usable_cpus())
    return lambda query, passage: float(np.dot(encoder.embed(query, "query").vector, encoder.embed(passage, "passage").vector))


def tolerance_of(check: Check, files: ModelFiles, processor: Arithmetic) -> float:
    """What the score may be off on this processor."""
    if files.precision == "int8" and processor.saturates and check.saturating is not None:
        return check.saturating
    return check.tolerance


def run_checks(files: ModelFiles, processor: Arithmetic | None = None) -> list[CheckResult]:
    """Score the stored pairs with these files; None for the processor that this runs on. Without pairs the model is not opened."""
    if not files.checks:
        return []
    processor, score = processor or this_arithmetic(), pair_scorer(files)
    return [CheckResult(check, score(check.query, check.passage), tolerance_of(check, files, processor)) for check in files.checks]


def worst_failure(results: list[CheckResult]) -> CheckResult | None:
    """The failed check that is furthest off; None where all passed."""
    failed = [result for result in results if not result.passed]
    # A score that is no number is as far off as can be; max() would not order it.
    return max(failed, key=lambda result: abs(np.nan_to_num(result.score - result.check.expected, nan=np.inf)), default=None)


def require_checks(files: ModelFiles) -> None:
    """Raise where a check fails.

    Raises:
        ConversionError: the message names the model, the score and what was expected.
    """
    failure = worst_failure(run_checks(files))
    if failure is not None:
        raise ConversionError(
            f"{files.model} scores a stored pair {failure.sentence}: it must not be used. Delete its folder and fetch again, or use "
            "another precision."
        )


def known_pairs(spec: ModelSpec) -> list[tuple[str, str]]:
    """Queries and passages to try a model with: those of its checks, or those of the manifest's default, which are in two languages."""
    checks = spec.checks or manifest().get(manifest().default).checks
    return [(check.query, check.passage) for check in checks]


def seconds_a_pair(files: ModelFiles, clock: Callable[[], float] = time.perf_counter) -> float:
    """How long a pair of about 500 characters takes on one thread: the best of a few runs, so that a busy moment does not count."""
    score = pair_scorer(files)
    query, passage = known_pairs(files.spec)[0]
    passage = " ".join([passage] * PASSAGE_REPEATS)
    score(query, passage)  # the first run costs more
    times = []
    for _ in range(TIMED_RUNS):
        started = clock()
        score(query, passage)
        times.append(clock() - started)
    return min(times)
