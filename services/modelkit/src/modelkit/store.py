"""The cache on disk: where files lie, how they get there whole, and the receipt that says what they are.

`<cache>/<model id>/<revision, a commit cut to 12 digits>/` holds `model_<precision>.onnx` (OpenVINO: `.xml` and `.bin`),
`tokenizer.json` and `receipt-<precision>.json`.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

from filelock import FileLock, Timeout
from platformdirs import user_cache_path
from pydantic import BaseModel, ValidationError

from modelkit.errors import DamagedFileError
from modelkit.manifest import OPENVINO, TOKENIZER, Check, ModelSpec, Precision

BLOCK = 1 << 20
QUANTIZED = "-quantized"
"""Ends revision and folder of files that were quantised here."""
SCRATCH = (".tmp-*",)
"""Names of everything that is only there while a fetch runs; a partial download (`.part`) is not among it."""


def default_cache() -> Path:
    """The user's cache folder for models; honours XDG_CACHE_HOME."""
    return user_cache_path("knowledge-gateway") / "models"


class Receipt(BaseModel):
    """What lies in the folder for one precision, and how it came to be. Written last: with it the set is complete."""

    model: str
    revision: str
    precision: Precision
    source: str
    files: dict[str, str]
    """File name to sha256: of the pinned files, of those the user gave the hash of, and of converted ones."""
    tools: dict[str, str] = {}
    """Versions of the packages that converted; empty where nothing was converted."""
    golden: tuple[Check, ...] = ()
    """Scores that the weights gave before they were quantised here; empty where the manifest's checks count."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A complete, verified set of files."""

    spec: ModelSpec
    precision: Precision
    revision: str
    folder: Path
    golden: tuple[Check, ...] = ()

    @property
    def checks(self) -> tuple[Check, ...]:
        """Pairs whose scores are known: from before the quantisation, else from the manifest."""
        return self.golden or self.spec.checks

    @property
    def label(self) -> str:
        """For messages."""
        return f"{self.spec.id} ({self.precision})"

    @property
    def model(self) -> Path:
        """The graph."""
        return self.folder / model_name(self.precision)

    @property
    def tokenizer(self) -> Path:
        """The tokenizer's definition."""
        return self.folder / TOKENIZER


def model_name(precision: Precision) -> str:
    """The file name of the graph at this precision."""
    return f"model_{precision}.{'xml' if precision in OPENVINO else 'onnx'}"


def model_folder(cache_dir: Path, spec: ModelSpec, precision: Precision) -> Path:
    """Where the files of this model and precision lie."""
    revision = spec.precisions[precision].revision
    return cache_dir / spec.id / (revision[:12] if len(revision) == 40 else revision)


def quantized_folder(cache_dir: Path, spec: ModelSpec) -> Path:
    """Where files lie that were made here from those of the manifest, beside these."""
    source = model_folder(cache_dir, spec, spec.source)
    return source.with_name(source.name + QUANTIZED)


def receipt_path(folder: Path, precision: Precision) -> Path:
    """Where the receipt of this precision lies."""
    return folder / f"receipt-{precision}.json"


def read_receipt(folder: Path, precision: Precision) -> Receipt | None:
    """The receipt, or None where there is none, it does not parse, or a file that it names is missing."""
    try:
        receipt = Receipt.model_validate_json(receipt_path(folder, precision).read_bytes())
    except (OSError, ValidationError):
        return None
    return receipt if all((folder / name).is_file() for name in receipt.files) else None


def write_receipt(folder: Path, receipt: Receipt) -> None:
    """Write the receipt whole or not at all."""
    text = receipt.model_dump_json(indent=2).encode()
    write_whole(receipt_path(folder, receipt.precision), lambda out: out.write(text))


def sha256_of(path: Path) -> str:
    """The sha256 of a file, as 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_file(path: Path, expected: str) -> None:
    """Compare a file's hash.

    Raises:
        DamagedFileError: it differs; the message names the file and both hashes.
    """
    found = sha256_of(path)
    if found != expected:
        raise DamagedFileError(path, expected=expected, found=found)


def write_whole(target: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Fill a temporary file beside `target`, then rename it there: nobody ever sees half of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=target.parent, prefix=".tmp-", delete=False) as file:
        temporary = Path(file.name)
        try:
            write(file)
            file.flush()
            temporary.chmod(0o644)
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def place(stream: IO[bytes], target: Path, expected: str) -> None:
    """Copy a stream to `target`, but only if its content has the expected sha256.

    Raises:
        DamagedFileError: it has not; nothing is left at `target`.
    """
    digest = hashlib.sha256()

    def copy(out: IO[bytes]) -> None:
        while block := stream.read(BLOCK):
            digest.update(block)
            out.write(block)
        if digest.hexdigest() != expected:
            raise DamagedFileError(target, expected=expected, found=digest.hexdigest())

    write_whole(target, copy)


@contextmanager
def exclusive(folder: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Only one process fills a folder; what a killed one left behind is swept up. `on_wait` is called before waiting for another."""
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        on_wait()
        lock.acquire()
    try:
        for scratch in (found for pattern in SCRATCH for found in folder.glob(pattern)):
            remove(scratch)
        yield
    finally:
        lock.release()


def remove(path: Path) -> None:
    """Remove a file or a folder if it is there."""
    with suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
