"""The command `knowledge-models`: which models there are, fetch them, check them, find them."""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel, ValidationError

from modelkit.against_torch import TorchScores, compare, scores_of_torch
from modelkit.errors import DamagedFileError, ModelError
from modelkit.fetch import cached, ensure
from modelkit.manifest import OPENVINO, ModelSpec, PrecisionSpec, manifest
from modelkit.progress import stderr_progress
from modelkit.quantization import quantize as make_files
from modelkit.quantization import quantized
from modelkit.selfcheck import CheckResult, run_checks
from modelkit.store import ModelFiles, default_cache, model_folder, read_receipt
from servicekit.settings import ConfigurationError, SettingsGroup, load_group

EXIT_FAILED = 1

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Model files of the Knowledge Gateway, each pinned by its sha256. They lie in MODEL_CACHE_DIR, or where that is not set "
    "in your own cache folder, and are shared by all services on this machine.",
)

Models = Annotated[list[str] | None, typer.Argument(help="Ids from `knowledge-models list`.")]
PrecisionOption = Annotated[str, typer.Option(help="int8, fp32, or auto for the first that the model has.")]
PairsOption = Annotated[
    Path | None,
    typer.Option(
        exists=True, dir_okay=False, help="For int8-static: JSON lines with `query` and `passage`, some hundred as they will be served."
    ),
]
HashOption = Annotated[list[str] | None, typer.Option("--hash", help="PATH=SHA256 for a file that the manifest marks as unverified.")]
CacheOption = Annotated[Path | None, typer.Option("--cache-dir", help="Another folder than MODEL_CACHE_DIR says.")]


class _Pair(BaseModel):
    query: str
    passage: str


class CacheSettings(SettingsGroup):
    """Where model files lie."""

    model_cache_dir: Path | None = None


def _cache(given: Path | None) -> Path:
    return given or load_group(CacheSettings).model_cache_dir or default_cache()


@app.command("list")
def list_models(cache_dir: CacheOption = None) -> None:
    """Show every model: what it is for, where it comes from, and whether it is here."""
    cache = _cache(cache_dir)
    for spec in manifest().models.values():
        default = "  (the default of `fetch`)" if spec.id == manifest().default else ""
        typer.echo(f"{spec.id}{default}")
        typer.echo(f"    {spec.title}: {', '.join(spec.kinds)}; {spec.languages}; {spec.licence}")
        for precision, chosen in spec.precisions.items():
            here = "here" if read_receipt(model_folder(cache, spec, precision), precision) else "not fetched"
            sources = ", then ".join(source.describe() for source in chosen.sources)
            typer.echo(f"    {precision}: {here}; {_download(chosen)} from {sources}")
    typer.echo(f"\nFiles are in {cache}.")


def _download(chosen: PrecisionSpec) -> str:
    files = chosen.sources[0].files
    if any(file.unverified for file in files):
        return "of a hash that nobody could check (pass it with --hash),"
    return f"{sum(file.bytes or 0 for file in files) / 1e6:.0f} MB"


@app.command()
def fetch(
    models: Models = None,
    precision: PrecisionOption = "auto",
    hashes: HashOption = None,
    cache_dir: CacheOption = None,
) -> None:
    """Fetch models (without a name: the one that the demo uses), check every file, convert where needed.

    What is here already is checked and not fetched again; an interrupted fetch goes on where it stopped.
    """
    given = _parse_hashes(hashes or [])
    for model_id in models or [manifest().default]:
        files = ensure(model_id, _cache(cache_dir), stderr_progress(), precision=precision, hashes=given)
        typer.echo(f"{model_id} ({files.precision}) is in {files.folder}")


def _parse_hashes(pairs: Sequence[str]) -> dict[str, str]:
    given = {}
    for pair in pairs:
        path, _, sha256 = pair.partition("=")
        if len(sha256) != 64 or set(sha256.lower()) - set("0123456789abcdef"):
            raise typer.BadParameter("write PATH=SHA256, the hash as 64 hex digits", param_hint="--hash")
        given[path] = sha256.lower()
    return given


@app.command()
def quantize(
    model: Annotated[str, typer.Argument(help="An id from `knowledge-models list`.")],
    to: Annotated[str, typer.Option(help="int8 (ONNX Runtime); or bf16, int8-weights or int8-static (OpenVINO).")] = "int8",
    pairs: PairsOption = None,
    hashes: HashOption = None,
    cache_dir: CacheOption = None,
) -> None:
    """Make files at another precision from fp32 (fetched if it is not here), in minutes and with four times its size in memory.

    Of a model that comes as int8 alone, the weights of that are taken. The result is held to the scores that fp32 gives of a few
    pairs; these are kept with it and checked whenever it is opened.
    """
    spec = manifest().get(model)
    wanted = next((precision for precision in ("int8", *OPENVINO) if precision == to and precision != spec.source), None)
    if wanted is None:
        raise typer.BadParameter(
            f"{model} can be made into {', '.join(p for p in ('int8', *OPENVINO) if p != spec.source)}", param_hint="--to"
        )
    given = _read_pairs(pairs) if pairs else []
    cache, progress = _cache(cache_dir), stderr_progress()
    source = ensure(model, cache, progress, precision=spec.source, hashes=_parse_hashes(hashes or []))
    files = make_files(source, cache, progress, wanted, given)
    typer.echo(f"{files.label} is in {files.folder}")
    _print_checks(run_checks(files))


def _read_pairs(path: Path) -> list[tuple[str, str]]:
    pairs = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            pair = _Pair.model_validate_json(line)
        except ValidationError:
            raise typer.BadParameter(f"line {number} is no object with `query` and `passage`", param_hint="--pairs") from None
        pairs.append((pair.query, pair.passage))
    return pairs


@app.command()
def verify(
    models: Models = None,
    against_torch: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="A folder with the same model for transformers, to compare its scores."),
    ] = None,
    python: Annotated[
        Path | None, typer.Option(exists=True, help="For --against-torch: an interpreter with torch and transformers.")
    ] = None,
    cache_dir: CacheOption = None,
) -> None:
    """Check the files that are here (without a name: all of them): every sha256, then the scores of a few pairs."""
    cache = _cache(cache_dir)
    if against_torch is not None and (python is None or len(models or []) != 1):
        raise typer.BadParameter("name one model, and with --python the interpreter that has torch", param_hint="--against-torch")
    chosen = [manifest().get(model_id) for model_id in models] if models else list(manifest().models.values())
    torch = scores_of_torch(chosen[0], against_torch, python) if against_torch and python else None
    verdicts = [sound for spec in chosen for sound in _verify(spec, cache, torch)]
    if not verdicts:
        typer.echo(f"None of these models is in {cache}. Fetch one with `knowledge-models fetch`, or name another --cache-dir.", err=True)
        raise typer.Exit(EXIT_FAILED)
    if not all(verdicts):
        raise typer.Exit(EXIT_FAILED)


def _verify(spec: ModelSpec, cache: Path, torch: TorchScores | None) -> Iterator[bool]:
    """Whether each set of files that is here is sound."""
    sets = {f"{spec.id} ({precision})": partial(cached, spec.id, cache, precision=precision) for precision in spec.precisions}
    sets |= {f"{spec.id} ({precision}, made here)": partial(quantized, spec, cache, precision) for precision in ("int8", *OPENVINO)}
    found = False
    for name, look in sets.items():
        try:
            files = look()
        except DamagedFileError as error:
            typer.echo(f"{name}: {error}")
            found = True
            yield False
            continue
        if files is not None:
            found = True
            yield _verify_scores(name, files)
            if torch is not None:
                yield _verify_by_torch(name, files, torch)
    if not (found or spec.checks):
        typer.echo(f"{spec.id}: open; it is not here, and no scores of it are stored")


def _verify_by_torch(name: str, files: ModelFiles, torch: TorchScores) -> bool:
    checks = compare(files, torch)
    versions = ", ".join(f"{name} {version}" for name, version in torch.versions.items())
    sound = all(check.passed for check in checks)
    typer.echo(f"{name}: {'as in torch' if sound else 'not as in torch'}; expected by {versions}")
    _print_checks(checks)
    return sound


def _verify_scores(name: str, files: ModelFiles) -> bool:
    checks = run_checks(files)
    met = sum(check.passed for check in checks)
    verdict = "sound" if met == len(checks) else "scores wrongly on this machine"
    if not checks:
        verdict = "open, as no scores of it are stored (compare with --against-torch)"
    typer.echo(f"{name}: {verdict}; files as pinned, {met} of {len(checks)} stored scores met")
    _print_checks(checks)
    return met == len(checks)


def _print_checks(checks: Sequence[CheckResult]) -> None:
    for check in checks:
        verdict = "" if check.passed else "  <- off"
        typer.echo(f"    score {check.score:9.4f}  expected {check.check.expected:9.4f}  tolerance {check.tolerance:g}{verdict}")


@app.command("path")
def show_path(
    model: Annotated[str | None, typer.Argument(help="An id from `knowledge-models list`; without one, the cache folder.")] = None,
    precision: PrecisionOption = "auto",
    cache_dir: CacheOption = None,
) -> None:
    """Print the folder of a model that is here, or of the cache."""
    if model is None:
        typer.echo(_cache(cache_dir))
        return
    spec = manifest().get(model)
    chosen = spec.choose(precision)
    folder = model_folder(_cache(cache_dir), spec, chosen)
    if read_receipt(folder, chosen) is None:
        typer.echo(f"{model} ({chosen}) is not here. Fetch it: knowledge-models fetch {model} --precision {chosen}", err=True)
        raise typer.Exit(EXIT_FAILED)
    typer.echo(folder)


def main() -> None:
    """Run the command; what is wrong with a model is one sentence and status 1."""
    try:
        app()
    except (ModelError, ConfigurationError) as error:
        typer.echo(f"knowledge-models: {error}", err=True)
        sys.exit(EXIT_FAILED)
