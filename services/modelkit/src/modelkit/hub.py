"""Files from the Hugging Face hub, by commit: resumable, and a hub that cannot be reached costs three seconds once."""

import threading
from functools import cached_property
from pathlib import Path

import httpx
from huggingface_hub import constants, get_token, hf_hub_url

from modelkit.errors import UnavailableError
from modelkit.manifest import PinnedFile
from modelkit.progress import Advance
from modelkit.store import check_file

PROBE_TIMEOUT_S = 3.0
ATTEMPTS = 4
BLOCKED = frozenset({403, 407})


class Hub:
    """The hub that huggingface_hub is configured for (its mirror, token and offline settings count).

    Args:
        client: who makes the requests; None for one that follows redirects and heeds proxy settings.
        probe_timeout_s: how long the one question whether the hub is there may take.
    """

    def __init__(self, client: httpx.Client | None = None, probe_timeout_s: float = PROBE_TIMEOUT_S) -> None:
        self._given = client
        self._probe_timeout_s = probe_timeout_s

    @cached_property
    def _client(self) -> httpx.Client:
        if self._given is not None:
            return self._given
        return httpx.Client(follow_redirects=True, timeout=httpx.Timeout(30.0, connect=10.0))

    @cached_property
    def reachable(self) -> bool:
        """Whether the hub answers; asked once. Looking up its name may hang, so a thread asks and is not waited for."""
        if constants.HF_HUB_OFFLINE:
            return False
        answers: list[bool] = []
        asker = threading.Thread(target=lambda: answers.append(self._ask()), name="hub-probe", daemon=True)
        asker.start()
        asker.join(self._probe_timeout_s)
        return bool(answers and answers[0])

    def _ask(self) -> bool:
        try:
            status = self._client.head(constants.ENDPOINT, timeout=self._probe_timeout_s).status_code
        except httpx.HTTPError:
            return False
        return status < 500 and status not in BLOCKED

    def fetch(self, repository: str, revision: str, file: PinnedFile, target: Path, *, sha256: str, advance: Advance) -> None:
        """Download one file to `target`; a partial download from before goes on where it stopped.

        Raises:
            UnavailableError: the hub did not deliver it.
            DamagedFileError: what it delivered is not what was pinned; the download is thrown away.
        """
        url = hf_hub_url(repository, file.path, revision=revision)
        part = target.with_name(f".{target.name}.part")
        part.parent.mkdir(parents=True, exist_ok=True)
        if part.exists():
            advance(part.stat().st_size)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._stream(url, part, advance)
                break
            except (httpx.TransportError, httpx.HTTPStatusError) as error:
                final = isinstance(error, httpx.HTTPStatusError) and error.response.status_code < 500
                if final or attempt == ATTEMPTS:
                    raise UnavailableError(f"{file.path}: {_reason(error)}") from error
        try:
            check_file(part, sha256)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        part.chmod(0o644)
        part.replace(target)

    def _stream(self, url: str, part: Path, advance: Advance) -> None:
        done = part.stat().st_size if part.exists() else 0
        headers = {"Range": f"bytes={done}-"} if done else {}
        if token := get_token():
            headers["Authorization"] = f"Bearer {token}"
        with self._client.stream("GET", url, headers=headers) as response:
            if response.status_code == 416:  # nothing is left to send: the hash will tell whether that is right
                return
            response.raise_for_status()
            with part.open("ab" if response.status_code == 206 else "wb") as out:
                for block in response.iter_bytes():
                    out.write(block)
                    advance(len(block))


def _reason(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.HTTPStatusError):
        return f"HTTP {error.response.status_code}"
    return type(error).__name__


DEFAULT_HUB = Hub()
"""One for the process, so that it is probed once."""
