"""One command, one server: bind, say where, serve, drain."""

import socket
import sys
from collections.abc import Callable

import structlog
import uvicorn
from fastapi import FastAPI

from servicekit.logs import configure_logging
from servicekit.settings import ConfigurationError, process_address

EXIT_CONFIGURATION = 2
BACKLOG = 2048


def serve(
    service: str, default_port: int, log_level: Callable[[], str], create_app: Callable[[], FastAPI], *, grace_s: Callable[[], int]
) -> None:
    """Run the app until SIGTERM or SIGINT; requests in flight get `grace_s` seconds to finish. It is asked after `create_app`.

    Exits with status 2 and one sentence on stderr if the configuration is wrong or the port is taken.
    """
    try:
        configure_logging(service, log_level())
        host, port = process_address(default_port)
        app = create_app()
        bound = _bind(host, port)
    except ConfigurationError as error:
        print(f"{service}: {error}", file=sys.stderr)  # noqa: T201 - for the person who starts it
        raise SystemExit(EXIT_CONFIGURATION) from None
    log = structlog.get_logger(service)
    log.info("listening", url=f"http://{host}:{bound.getsockname()[1]}", port=bound.getsockname()[1])
    config = uvicorn.Config(
        app,
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=grace_s(),
    )
    server = uvicorn.Server(config)
    try:
        server.run(sockets=[bound])
    except SystemExit:
        if server.started:
            raise
        # A refused start; the server has logged the sentence.
        raise SystemExit(EXIT_CONFIGURATION) from None


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        # From here callers wait in the queue instead of being refused while the app starts.
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        message = f"cannot listen on {host}:{port} ({error.strerror}). Set PORT to a free one, or end the process that holds it."
        raise ConfigurationError(message) from error
    return bound
