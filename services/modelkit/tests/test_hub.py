"""Downloads from a hub that answers, breaks off, lies or hangs."""

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from modelkit.errors import DamagedFileError, UnavailableError
from modelkit.hub import ATTEMPTS, Hub
from modelkit.manifest import PinnedFile

CONTENT = bytes(range(256)) * 40
PIN = hashlib.sha256(CONTENT).hexdigest()
FILE = PinnedFile(path="onnx/model.onnx", name="model_int8.onnx", sha256=PIN)


class FakeHub:
    """Answers with `content`, honours ranges, and breaks off after `stumble` bytes as often as it is told to."""

    def __init__(self, content: bytes = CONTENT, *, stumbles: int = 0, status: int = 200) -> None:
        self.content, self.stumbles, self.status = content, stumbles, status
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        self.requests.append(request)
        if self.status != 200:
            return httpx.Response(self.status)
        begin = int(request.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        if begin >= len(self.content) > 0 and begin:
            return httpx.Response(416)
        self.stumbles -= 1
        rest = self.content[begin:]
        body = _broken(rest[: len(rest) // 2]) if self.stumbles >= 0 else iter([rest])
        return httpx.Response(206 if begin else 200, content=body)

    def hub(self, **options: float) -> Hub:
        """The hub under test, with this one behind it."""
        return Hub(httpx.Client(transport=httpx.MockTransport(self)), **options)


def _broken(first: bytes) -> Iterator[bytes]:
    yield first
    raise httpx.ReadError("connection reset")


def _fetch(hub: Hub, folder: Path) -> list[int]:
    done: list[int] = []
    hub.fetch("org/model", "abc", FILE, folder / FILE.name, sha256=PIN, advance=done.append)
    return done


def test_a_file_is_fetched_by_commit(tmp_path: Path) -> None:
    """The revision stands in the address, and the progress adds up."""
    fake = FakeHub()
    assert sum(_fetch(fake.hub(), tmp_path)) == len(CONTENT)
    assert fake.requests[0].url.path == "/org/model/resolve/abc/onnx/model.onnx"
    assert (tmp_path / FILE.name).read_bytes() == CONTENT


def test_a_broken_download_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Within one call."""
    fake = FakeHub(stumbles=2)
    _fetch(fake.hub(), tmp_path)
    assert [request.headers.get("Range") for request in fake.requests] == [None, "bytes=5120-", "bytes=7680-"]
    assert (tmp_path / FILE.name).read_bytes() == CONTENT


def test_a_download_of_another_process_goes_on_too(tmp_path: Path) -> None:
    """The partial file outlives a failure, and its size counts as progress."""
    with pytest.raises(UnavailableError, match="ReadError"):
        _fetch(FakeHub(stumbles=ATTEMPTS).hub(), tmp_path)
    fake = FakeHub()
    assert sum(_fetch(fake.hub(), tmp_path)) == len(CONTENT)
    assert "Range" in fake.requests[0].headers


def test_a_complete_partial_file_is_taken_as_it_is(tmp_path: Path) -> None:
    """The process ended between the last byte and the rename."""
    (tmp_path / f".{FILE.name}.part").write_bytes(CONTENT)
    _fetch(FakeHub().hub(), tmp_path)
    assert (tmp_path / FILE.name).read_bytes() == CONTENT


def test_other_content_is_thrown_away(tmp_path: Path) -> None:
    """Neither the file nor its partial form stays."""
    with pytest.raises(DamagedFileError):
        _fetch(FakeHub(b"other").hub(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_not_asked_for_again(tmp_path: Path) -> None:
    """404 is final, 500 is not."""
    gone, broken = FakeHub(status=404), FakeHub(status=500)
    with pytest.raises(UnavailableError, match="HTTP 404"):
        _fetch(gone.hub(), tmp_path)
    with pytest.raises(UnavailableError, match="HTTP 500"):
        _fetch(broken.hub(), tmp_path)
    assert (len(gone.requests), len(broken.requests)) == (1, ATTEMPTS)


@pytest.mark.parametrize(("status", "reachable"), [(200, True), (404, True), (403, False), (407, False), (502, False)])
def test_the_hub_is_asked_once_whether_it_is_there(status: int, reachable: bool) -> None:
    """Whatever is no refusal of a proxy is an answer."""
    fake = FakeHub(status=status)
    hub = fake.hub()
    assert [hub.reachable, hub.reachable] == [reachable, reachable]
    assert len(fake.requests) == 1


def test_a_hub_that_hangs_is_not_waited_for() -> None:
    """Not even where the time-outs of the client do not apply, as when a name is looked up."""
    release = threading.Event()

    def hang(_: httpx.Request) -> httpx.Response:
        release.wait(20)
        return httpx.Response(200)

    hub = Hub(httpx.Client(transport=httpx.MockTransport(hang)), probe_timeout_s=0.05)
    assert hub.reachable is False
    release.set()


def test_a_hub_without_a_route_is_unreachable() -> None:
    """As on most build machines."""

    def refuse(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no route")

    assert Hub(httpx.Client(transport=httpx.MockTransport(refuse))).reachable is False
