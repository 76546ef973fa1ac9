"""One command, one server: what stops it says so in one sentence and with status 2."""

import gc
import socket

import pytest
from fastapi import FastAPI

from servicekit.server import EXIT_CONFIGURATION, serve
from servicekit.settings import ConfigurationError


def start(capsys: pytest.CaptureFixture[str], log_level: object = lambda: "INFO", create: object = FastAPI) -> str:
    """What a start that fails prints."""
    with pytest.raises(SystemExit) as caught:
        serve("the-service", 0, log_level, create, grace_s=lambda: 1)  # type: ignore[arg-type]
    assert caught.value.code == EXIT_CONFIGURATION == 2
    gc.collect()  # a socket that was left open is heard of here, and not in some other test
    err = capsys.readouterr().err
    assert "Traceback" not in err
    return err


@pytest.mark.usefixtures("logging_restored")
class TestStart:
    """Starts that fail."""

    def test_wrong_settings(self, capsys: pytest.CaptureFixture[str]) -> None:
        """The sentence, with the service's name in front."""

        def wrong() -> str:
            raise ConfigurationError("X is wrong. Correct X, or unset it.")

        assert start(capsys, wrong) == "the-service: X is wrong. Correct X, or unset it.\n"

    def test_an_app_that_refuses(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Also when the app itself finds that the configuration is wrong."""

        def refuse() -> FastAPI:
            raise ConfigurationError("no index")

        assert "the-service: no index" in start(capsys, create=refuse)

    def test_a_port_that_is_taken(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        """Names PORT and the address."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            monkeypatch.setenv("PORT", str(port))
            message = start(capsys)
        assert str(port) in message
        assert "PORT" in message

    def test_a_host_that_is_none(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        """A name that does not resolve is a sentence too."""
        monkeypatch.setenv("HOST", "no.such.host.invalid")
        assert "no.such.host.invalid" in start(capsys)
