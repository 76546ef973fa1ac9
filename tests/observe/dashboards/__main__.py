"""`python -m tests.observe.dashboards`: writes charts/knowledge-gateway/dashboards/*.json."""

from __future__ import annotations

from tests.observe.dashboards.files import FOLDER, texts


def main() -> None:
    """Write every dashboard; what is there and none of them goes away."""
    FOLDER.mkdir(exist_ok=True)
    written = texts()
    for stale in set(FOLDER.glob("*.json")) - {FOLDER / name for name in written}:
        stale.unlink()
    for name, text in written.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    print(f"{len(written)} dashboards written to {FOLDER}")


if __name__ == "__main__":
    main()
