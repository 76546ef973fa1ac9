"""Files at other precisions, made here from those of the manifest and held to what those say."""

import json
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from modelkit.conversion import run_apart
from modelkit.cpu import usable_cpus
from modelkit.cross_encoder import CrossEncoder
from modelkit.encoder import Encoder
from modelkit.errors import ConversionError
from modelkit.manifest import OPENVINO, TOKENIZER, Check, ModelSpec, Precision
from modelkit.progress import Progress
from modelkit.selfcheck import TOLERANCE, known_pairs, pair_scorer, run_checks, worst_failure
from modelkit.store import (
    QUANTIZED,
    ModelFiles,
    Receipt,
    check_file,
    exclusive,
    model_name,
    quantized_folder,
    read_receipt,
    remove,
    sha256_of,
    write_receipt,
)
from modelkit.tokenize import Tokens

MEMORY = "four times the fp32 file"
MIN_PAIRS = 30
"""To calibrate with: fewer do not show what the ranges are. Measured on MiniLM, 300 are better than 30."""

Pairs = Sequence[tuple[str, str]]


def quantized(spec: ModelSpec, cache_dir: Path, precision: Precision = "int8") -> ModelFiles | None:
    """The verified files at this precision that were made here; None if there are none.

    Raises:
        DamagedFileError: a file is not what was recorded.
    """
    if precision == spec.source:
        return None
    folder = quantized_folder(cache_dir, spec)
    receipt = read_receipt(folder, precision)
    if receipt is None or receipt.revision != _revision(spec):
        return None
    for name, recorded in receipt.files.items():
        check_file(folder / name, recorded)
    return ModelFiles(spec, precision, receipt.revision, folder, receipt.golden)


def _revision(spec: ModelSpec) -> str:
    return spec.precisions[spec.source].revision + QUANTIZED


def quantize(source: ModelFiles, cache_dir: Path, progress: Progress, precision: Precision = "int8", pairs: Pairs = ()) -> ModelFiles:
    """Make files at another precision, unless they are here; the scores that fp32 gave go into their receipt.

    Args:
        source: verified files of the precision that others are made from.
        cache_dir: the cache.
        progress: who is told.
        precision: what to make.
        pairs: for `int8-static`: queries and passages as they will be served, to see what values there are.

    Raises:
        DamagedFileError: files are here, and are not what was recorded.
        ConversionError: it failed, or the result is too far from fp32; then nothing is kept.
    """
    spec = source.spec
    folder = quantized_folder(cache_dir, spec)
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder, lambda: progress.note(f"{spec.id}: another process is quantising it; waiting for that ...")):
        if (files := quantized(spec, cache_dir, precision)) is not None:
            return files
        if precision == "int8-static" and len(pairs) < MIN_PAIRS:
            raise ConversionError(
                f"int8-static is calibrated with pairs as they will be served, and {len(pairs)} were given, fewer than {MIN_PAIRS}. "
                "Pass more (--pairs FILE), or use bf16 or int8-weights, which need none."
            )
        with progress.task(f"{spec.id}: making {precision}, which takes {MEMORY} in memory", None):
            return _make(source, ModelFiles(spec, precision, _revision(spec), folder), pairs)


def _make(source: ModelFiles, wanted: ModelFiles, pairs: Pairs) -> ModelFiles:
    folder, precision = wanted.folder, wanted.precision
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory(dir=folder, prefix=".tmp-quantize-")))
        full = source if source.precision == "fp32" else _undone(source, scratch)
        golden = golden_checks(full)
        files = ModelFiles(wanted.spec, precision, wanted.revision, folder, golden)
        made = [files.model]
        if precision in OPENVINO:
            made.append(files.model.with_suffix(".bin"))
            words = [precision, *([str(calibration(full, pairs, scratch))] if pairs else [])]
            packages = ("openvino",) if precision == "bf16" else ("openvino", "nncf")
            tools = run_apart(
                "modelkit.openvino_graph", full.model, files.model, *words, memory=MEMORY, packages=packages, extra="quantize"
            )
        else:
            tools = run_apart("modelkit.quantize_graph", full.model, files.model, memory=MEMORY)
    shutil.copy(source.tokenizer, files.tokenizer)
    if (failure := worst_failure(run_checks(files))) is not None:
        for path in made:
            remove(path)
        raise ConversionError(
            f"as {precision}, {files.spec.id} scores a pair {failure.sentence} by its fp32 weights; it is not kept. Use another precision."
        )
    write_receipt(
        folder,
        Receipt(
            model=files.spec.id,
            revision=files.revision,
            precision=precision,
            source=f"{source.model.name}, sha256 {sha256_of(source.model)}",
            files={name: sha256_of(folder / name) for name in (*(path.name for path in made), TOKENIZER)},
            tools=tools,
            golden=golden,
        ),
    )
    return files


def _undone(source: ModelFiles, scratch: Path) -> ModelFiles:
    """fp32 files with the weights of int8 ones, where no other are to be had."""
    full = ModelFiles(source.spec, "fp32", source.revision, scratch)
    run_apart("modelkit.undo_int8", source.model, scratch / model_name("fp32"), memory=MEMORY)
    shutil.copy(source.tokenizer, full.tokenizer)
    return full


def calibration(full: ModelFiles, pairs: Pairs, scratch: Path) -> Path:
    """The inputs of a run for each pair, one a line."""
    path = scratch / "pairs.jsonl"
    lines = [json.dumps({"input_ids": run.ids.tolist(), "token_type_ids": run.type_ids.tolist()}) for run in _runs(full, pairs)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def _runs(full: ModelFiles, pairs: Pairs) -> list[Tokens]:
    if "cross-encoder" in full.spec.kinds:
        model = CrossEncoder(full, usable_cpus())
        return [model.pair(model.query(query), passage) for query, passage in pairs]
    encoder = Encoder(full, usable_cpus())
    return [tokens for query, passage in pairs for tokens in (encoder.tokenize(query, "query"), encoder.tokenize(passage, "passage"))]


def golden_checks(full: ModelFiles) -> tuple[Check, ...]:
    """What these weights say of a few pairs. Tolerances are the manifest's, where it has pairs of fp32."""
    score = pair_scorer(full)
    stored = {(check.query, check.passage): check for check in full.spec.checks if full.spec.source == "fp32"}
    usual = TOLERANCE[full.spec.kinds[0]]
    golden = []
    for query, passage in known_pairs(full.spec):
        check = stored.get((query, passage)) or Check(query=query, passage=passage, expected=0.0, tolerance=usual)
        golden.append(check.model_copy(update={"expected": score(query, passage)}))
    return tuple(golden)
