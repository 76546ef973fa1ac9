"""int8 files made here from a model's fp32 ones, held to what those say."""

import shutil
from pathlib import Path

from modelkit.conversion import run_apart
from modelkit.errors import ConversionError
from modelkit.manifest import TOKENIZER, Check, ModelSpec
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

MEMORY = "four times the fp32 file"


def quantized(spec: ModelSpec, cache_dir: Path) -> ModelFiles | None:
    """The verified int8 files that were made here; None if there are none.

    Raises:
        DamagedFileError: a file is not what was recorded.
    """
    if "fp32" not in spec.precisions:
        return None
    folder = quantized_folder(cache_dir, spec)
    receipt = read_receipt(folder, "int8")
    if receipt is None or receipt.revision != spec.precisions["fp32"].revision + QUANTIZED:
        return None
    for name, recorded in receipt.files.items():
        check_file(folder / name, recorded)
    return ModelFiles(spec, "int8", receipt.revision, folder, receipt.golden)


def quantize(full: ModelFiles, cache_dir: Path, progress: Progress) -> ModelFiles:
    """Make int8 files from fp32 ones, unless they are here; the scores that fp32 gave go into their receipt.

    Args:
        full: verified fp32 files.
        cache_dir: the cache.
        progress: who is told.

    Raises:
        DamagedFileError: files are here, and are not what was recorded.
        ConversionError: it failed, or int8 is too far from fp32; then nothing is kept.
    """
    folder = quantized_folder(cache_dir, full.spec)
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder, lambda: progress.note(f"{full.spec.id}: another process is quantising it; waiting for that ...")):
        if (files := quantized(full.spec, cache_dir)) is not None:
            return files
        with progress.task(f"{full.spec.id}: quantising, which takes {MEMORY} in memory", None):
            return _make(full, folder)


def _make(full: ModelFiles, folder: Path) -> ModelFiles:
    golden, revision = golden_checks(full), full.revision + QUANTIZED
    files = ModelFiles(full.spec, "int8", revision, folder, golden)
    tools = run_apart("modelkit.quantize_graph", full.model, files.model, memory=MEMORY)
    shutil.copy(full.tokenizer, files.tokenizer)
    if (failure := worst_failure(run_checks(files))) is not None:
        remove(files.model)
        raise ConversionError(f"quantised, {full.spec.id} scores a pair {failure.sentence} by its fp32 weights; it is not kept. Use fp32.")
    write_receipt(
        folder,
        Receipt(
            model=full.spec.id,
            revision=revision,
            precision="int8",
            source=f"{full.model.name}, sha256 {sha256_of(full.model)}",
            files={name: sha256_of(folder / name) for name in (model_name("int8"), TOKENIZER)},
            tools=tools,
            golden=golden,
        ),
    )
    return files


def golden_checks(full: ModelFiles) -> tuple[Check, ...]:
    """What these weights say of a few pairs. Tolerances are the manifest's, where it has pairs."""
    score = pair_scorer(full)
    stored = {(check.query, check.passage): check for check in full.spec.checks}
    usual = TOLERANCE[full.spec.kinds[0]]
    golden = []
    for query, passage in known_pairs(full.spec):
        check = stored.get((query, passage)) or Check(query=query, passage=passage, expected=0.0, tolerance=usual)
        golden.append(check.model_copy(update={"expected": score(query, passage)}))
    return tuple(golden)
