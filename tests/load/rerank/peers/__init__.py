"""Other CPU rerankers, each from the registry in an environment of its own, over the same file of MiniLM."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modelkit import ensure
from tests.load.figures import MeasurementFailed
from tests.load.rerank.texts import Asked

HERE = Path(__file__).parent
MODEL = "ms-marco-minilm-l12-v2"
READY_S = 300
PEERS: dict[str, tuple[str, ...]] = {
    "fastembed": ("fastembed==0.9.1",),
    "infinity": ("infinity-emb[optimum]==0.0.78", "optimum[onnxruntime]==1.24.0", "transformers<4.49"),
    "sentence_transformers": ("sentence-transformers[onnx]==5.7.0", "transformers<5"),
}
"""What is installed for each."""

SPECIAL = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]"}
CONFIG: dict[str, Any] = {
    "architectures": ["BertForSequenceClassification"],
    "model_type": "bert",
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "pad_token_id": 0,
    "id2label": {"0": "LABEL_0"},
    "label2id": {"LABEL_0": 0},
}


@dataclass(slots=True)
class Peer:
    """A running one; asked line by line."""

    name: str
    process: subprocess.Popen[str]

    def seconds(self, asked: Asked) -> float:
        """What it took to score a request, by its own clock.

        Raises:
            MeasurementFailed: it ended.
        """
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"query": asked.query, "documents": asked.documents}) + "\n")
        self.process.stdin.flush()
        return float(self.said())

    def said(self) -> Any:
        """Its next line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise MeasurementFailed(f"{self.name} ended with {self.process.wait(30)}")
        return json.loads(line)


def model_folder(cache: Path) -> Path:
    """MiniLM laid out as a hub has it."""
    folder, files = cache / "minilm", ensure(MODEL)
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    shutil.copy(files.model, folder / "onnx" / "model.onnx")
    shutil.copy(files.tokenizer, folder / "tokenizer.json")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "special_tokens_map.json").write_text(json.dumps(SPECIAL))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", "model_max_length": 512, **SPECIAL}))
    return folder


@contextmanager
def running(name: str, cache: Path, say: Callable[[str], None]) -> Iterator[Peer]:
    """Install it once and start it.

    Raises:
        MeasurementFailed: it cannot be installed, or does not start.
    """
    python = _environment(name, cache, say)
    command = [str(python), str(HERE / f"peer_{name}.py"), str(model_folder(cache))]
    with (cache / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            peer = Peer(name, process)
            if peer.said() != "ready":
                raise MeasurementFailed(f"{name} did not get ready; see {log.name}")
            yield peer
        finally:
            process.terminate()
            process.wait(30)


def _environment(name: str, cache: Path, say: Callable[[str], None]) -> Path:
    place = cache / name
    python, done = place / "bin" / "python", place / ".done"
    wanted = "\n".join(PEERS[name])
    if done.exists() and done.read_text() == wanted:
        return python
    say(f"installing {name} (once; the two with torch take gigabytes)")
    shutil.rmtree(place, ignore_errors=True)
    for command in (
        ["venv", "--quiet", "--python", sys.executable, str(place)],
        ["pip", "install", "--quiet", "--python", str(python), *PEERS[name]],
    ):
        told = subprocess.run(["uv", *command], capture_output=True, text=True, timeout=1800, check=False)
        if told.returncode != 0:
            raise MeasurementFailed(f"{name} cannot be installed: {told.stderr[-500:]}")
    done.write_text(wanted)
    return python
