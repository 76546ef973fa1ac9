"""`knowledge serve`."""

from knowledge.app import main


def serve() -> None:
    """Serve the gateway. Settings come from the environment, .env or CONFIG_FILE; HOST and PORT from the environment."""
    main()
