"""The reranker-service as `knowledge-reranker` runs it, with files of its own: `python serve.py FOLDER`, int8 and cross-encoder."""

import sys
from pathlib import Path

from modelkit import ModelFiles, manifest, usable_cpus
from modelkit.serving import run_model_service
from reranker.app import create_app, new_scheduler
from reranker.scheduler import Observer, Scheduler
from reranker.settings import RerankSettings
from servicekit.settings import load_group


def main() -> None:
    """Serve until SIGTERM, with the settings of the environment."""
    folder = Path(sys.argv[1])
    settings = load_group(RerankSettings)

    def load(settings: RerankSettings, observer: Observer) -> Scheduler:
        files = ModelFiles(manifest().get(settings.rerank_model), "int8", "random", folder)
        return new_scheduler(files, usable_cpus(), settings, observer)

    run_model_service(
        "knowledge-reranker",
        0,
        lambda: settings.log_level,
        lambda fail: create_app(settings, fail, load=load),
        grace_s=lambda: 5,
    )


if __name__ == "__main__":
    main()
