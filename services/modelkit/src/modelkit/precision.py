"""At which precision a service runs: decided once, at its start, and only for files that score here as they should."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import structlog

from modelkit.cpu import Arithmetic, this_arithmetic
from modelkit.errors import ConversionError, ModelError, UnavailableError, UnverifiedFileError, WrongScoreError
from modelkit.fetch import cached, ensure
from modelkit.manifest import OPENVINO, ModelSpec, Precision, manifest
from modelkit.progress import Progress
from modelkit.quantization import quantized
from modelkit.selfcheck import CheckResult, run_checks, seconds_a_pair, worst_failure
from modelkit.store import ModelFiles, default_cache

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where the files of one model come from.

    Attributes:
        known: the precisions that there may be.
        cached: the verified files of a precision; None if they are not here.
        get: the same, fetched if they are not here; raises `ModelError` where that fails.
    """

    known: Sequence[Precision]
    cached: Callable[[Precision], ModelFiles | None]
    get: Callable[[Precision], ModelFiles]


@dataclass(frozen=True, slots=True)
class Trial:
    """What the files are worth on this machine: their checks, the seconds for a pair, and whether OpenVINO is there to try them."""

    checks: Callable[[ModelFiles], list[CheckResult]] = run_checks
    seconds: Callable[[ModelFiles], float] = seconds_a_pair
    openvino: bool = field(default_factory=lambda: find_spec("openvino") is not None)


def open_shelf(spec: ModelSpec, cache_dir: Path | None, progress: Progress | None) -> Shelf:
    """The cache, and behind it the manifest's sources. int8 files that were made here go first: what they should say is known."""

    def here(precision: Precision) -> ModelFiles | None:
        made = quantized(spec, cache_dir or default_cache(), precision)
        if made is None and precision in spec.precisions:
            return cached(spec.id, cache_dir, precision=precision)
        return made

    def get(precision: Precision) -> ModelFiles:
        files = here(precision)
        if files is None and precision not in spec.precisions:
            to = "" if precision == "int8" else f" --to {precision}"
            raise UnavailableError(
                f"nobody offers {spec.id} as {precision}. Run `knowledge-models quantize {spec.id}{to}`, or use {spec.source}."
            )
        return files or ensure(spec.id, cache_dir, progress, precision=precision)

    return Shelf(spec.offered, here, get)


def files_to_serve(model_id: str, wanted: str, cache_dir: Path | None = None, progress: Progress | None = None) -> ModelFiles:
    """The verified files to run the model from, at the precision that is wanted or, with `auto`, that is best here.

    `auto` means: of the precisions that are here, the fastest, by a short run of each. Of one that is here, that one. Else
    what the processor's instructions promise to be the faster, or the other if that cannot be had. If int8 fails its checks,
    fp32 takes its place.

    Args:
        model_id: an id of the manifest.
        wanted: a precision or `auto`.
        cache_dir: the cache; None for the user's own.
        progress: who is told of fetching; None for stderr.

    Raises:
        WrongScoreError: the scores are not those that are stored, and nothing takes its place.
        ModelError: the files cannot be had, or are damaged.
    """
    spec = manifest().get(model_id)
    return Choice(spec, open_shelf(spec, cache_dir, progress), Trial(), this_arithmetic()).files(wanted)


class Choice:
    """The choice for one model.

    Args:
        spec: the model.
        shelf: its files.
        trial: tries them.
        processor: what it is good for.
    """

    def __init__(self, spec: ModelSpec, shelf: Shelf, trial: Trial, processor: Arithmetic) -> None:
        self._spec = spec
        self._shelf = shelf
        self._trial = trial
        self._processor = processor

    def files(self, wanted: str) -> ModelFiles:
        """As `files_to_serve`."""
        if wanted != "auto":
            asked = [precision for precision in self._shelf.known if precision == wanted]
            return self._as_asked(asked[0] if asked else self._spec.choose(wanted))
        here = [files for precision in self._by_promise() if (files := self._shelf.cached(precision)) is not None]
        made = [files for precision in self._runnable() if (files := self._shelf.cached(precision)) is not None and self._sound(files)]
        if made or len(here) > 1:
            return self._fastest(here, made)
        files = here[0] if here else self._first_to_be_had()
        return self._sound_or_other(files, "it is here" if here else "by the processor's instructions, of what could be had")

    def _by_promise(self) -> list[Precision]:
        order: list[Precision] = ["int8", "fp32"] if self._processor.int8_pays else ["fp32", "int8"]
        return [precision for precision in order if precision in self._shelf.known]

    def _runnable(self) -> list[Precision]:
        """Those of OpenVINO that can be run here."""
        return [precision for precision in OPENVINO if precision in self._shelf.known and self._why_not(precision) is None]

    def _why_not(self, precision: Precision) -> str | None:
        """What is missing here for a precision."""
        if precision in OPENVINO and not self._trial.openvino:
            return "openvino is not installed: install knowledge-reranker[openvino]"
        if precision == "bf16" and not self._processor.bf16_pays:
            return "this processor has no instructions for it"
        return None

    def _sound(self, files: ModelFiles) -> bool:
        """Whether files that others can take the place of score as they should."""
        failure = self._failure(files)
        if failure is not None:
            log.warning("precision.left_out", model=self._spec.id, precision=files.precision, **_figures(failure))
        return failure is None

    def _as_asked(self, precision: Precision) -> ModelFiles:
        if (missing := self._why_not(precision)) is not None:
            raise UnavailableError(
                f"{self._spec.id} cannot be run as {precision}: {missing}; or choose another precision (RERANK_PRECISION)."
            )
        files = self._shelf.get(precision)
        if (failure := self._failure(files)) is not None:
            raise WrongScoreError(_refusal(files, failure, "nothing else was asked for"))
        return self._chosen(files, "as asked for")

    def _first_to_be_had(self) -> ModelFiles:
        """Raises the error of the precision that was to be the first."""
        errors: list[ModelError] = []
        for precision in self._by_promise():
            try:
                return self._shelf.get(precision)
            except (UnavailableError, UnverifiedFileError, ConversionError) as error:
                log.warning("precision.not_there", model=self._spec.id, precision=precision, detail=str(error))
                errors.append(error)
        raise errors[0]

    def _fastest(self, here: list[ModelFiles], made: list[ModelFiles]) -> ModelFiles:
        """By time, of those that score as they should; `made` is known to."""
        for files in here if not made else ():
            if (failure := self._failure(files)) is not None:
                return self._instead_of(files, failure)
        sound = [*made, *filter(self._sound, here)] if made else here
        seconds = {files.precision: self._trial.seconds(files) for files in sound}
        best = min(sound, key=lambda files: seconds[files.precision])
        return self._chosen(best, "the fastest one here", **{f"{name}_ms": round(1000 * took, 1) for name, took in seconds.items()})

    def _sound_or_other(self, files: ModelFiles, reason: str) -> ModelFiles:
        failure = self._failure(files)
        return self._chosen(files, reason) if failure is None else self._instead_of(files, failure)

    def _instead_of(self, files: ModelFiles, failure: CheckResult) -> ModelFiles:
        """fp32 for files that failed."""
        if files.precision == "fp32":
            raise WrongScoreError(_refusal(files, failure, "fp32 is what the others are measured by"))
        if "fp32" not in self._shelf.known:
            raise WrongScoreError(_refusal(files, failure, "there is no fp32 of it"))
        try:
            other = self._shelf.get("fp32")
        except (UnavailableError, UnverifiedFileError, ConversionError) as error:
            raise WrongScoreError(_refusal(files, failure, f"fp32 cannot be had: {error}")) from None
        if (second := self._failure(other)) is not None:
            raise WrongScoreError(_refusal(other, second, f"{files.label} fails too"))
        log.warning(
            "precision.fell_back",
            model=self._spec.id,
            precision=other.precision,
            instead_of=files.precision,
            **_figures(failure),
        )
        return other

    def _failure(self, files: ModelFiles) -> CheckResult | None:
        return worst_failure(self._trial.checks(files))

    def _chosen(self, files: ModelFiles, reason: str, **figures: float) -> ModelFiles:
        log.info("precision.chosen", model=self._spec.id, precision=files.precision, reason=reason, checks=len(files.checks), **figures)
        return files


def _figures(failure: CheckResult) -> dict[str, float]:
    return {"score": round(failure.score, 4), "expected": failure.check.expected, "tolerance": failure.tolerance}


def _refusal(files: ModelFiles, failure: CheckResult, why_no_other: str) -> str:
    """What to do, for the person who starts the service."""
    return (
        f"{files.label} scores a stored pair {failure.sentence} on this machine, so it is not served; {why_no_other}. Delete "
        f"{files.model} and fetch it again, or choose another precision or model (RERANK_PRECISION, RERANK_MODEL)."
    )
