"""The reranker-service as `knowledge-reranker` runs it, with files of its own: `python serve.py FOLDER PRECISION` (or `auto`)."""

import sys
from pathlib import Path

from modelkit import ModelFiles, manifest, usable_cpus
from modelkit.cpu import this_arithmetic
from modelkit.manifest import OPENVINO, Precision
from modelkit.precision import Choice, Shelf, Trial
from modelkit.serving import run_model_service
from reranker.app import create_app, new_scheduler
from reranker.model import Observer
from reranker.scheduler import Scheduler
from reranker.settings import RerankSettings
from servicekit.settings import load_group


def main() -> None:
    """Serve until SIGTERM, with the settings of the environment."""
    folder, precision = Path(sys.argv[1]), sys.argv[2]
    settings = load_group(RerankSettings)
    spec = manifest().get(settings.rerank_model)

    def files(precision: Precision) -> ModelFiles:
        return ModelFiles(spec, precision, "random", folder)

    def load(settings: RerankSettings, observer: Observer) -> Scheduler:
        chosen = Choice(spec, Shelf(("int8", *OPENVINO), files, files), Trial(), this_arithmetic()).files(precision)
        return new_scheduler(chosen, usable_cpus(), settings, observer)

    run_model_service(
        "knowledge-reranker",
        0,
        lambda: settings.log_level,
        lambda fail: create_app(settings, fail, load=load),
        grace_s=lambda: 5,
    )


if __name__ == "__main__":
    main()
