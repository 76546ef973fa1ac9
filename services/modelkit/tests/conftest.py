"""Real models for the tests marked `models`, from the user's own cache; and a tokenizer of a handful of words."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from modelkit import CrossEncoder, Encoder, ModelFiles, ensure, usable_cpus
from modelkit.encoder_graph import Shape, write_encoder
from modelkit.manifest import PrecisionSpec, manifest
from modelkit.session import Stop

WORDS = ["query", "passage", ":", "wasser", "erde", "sonne", "mond", "s", "sep", "<", ">", "/", "[", "]", "cls"]


class _StopWithin(Stop):
    @contextmanager
    def ended_by(self, end: Callable[[], None]) -> Iterator[None]:
        with super().ended_by(end):
            self.request()
            yield


@pytest.fixture
def stop_within() -> Stop:
    """Is requested as soon as a run has taken it over."""
    return _StopWithin()


@pytest.fixture(scope="session")
def e5() -> Encoder:
    """multilingual-e5-small, int8."""
    return Encoder(ensure("multilingual-e5-small"), usable_cpus())


@pytest.fixture(scope="session")
def minilm() -> CrossEncoder:
    """ms-marco-minilm-l12-v2, int8."""
    return CrossEncoder(ensure("ms-marco-minilm-l12-v2"), usable_cpus())


def _word_tokenizer(path: Path, special: list[str], unknown: str) -> Path:
    vocabulary = {word: number for number, word in enumerate([*special, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(special)
    tokenizer.enable_padding(length=64)
    tokenizer.enable_truncation(64)
    tokenizer.save(str(path))
    return path


@pytest.fixture
def xlmr_json(tmp_path: Path) -> Path:
    """A tokenizer with XLM-R's special tokens: <s> 0, <pad> 1, </s> 2, <unk> 3, then the words."""
    return _word_tokenizer(tmp_path / "xlmr.json", ["<s>", "<pad>", "</s>", "<unk>"], "<unk>")


@pytest.fixture
def bert_json(tmp_path: Path) -> Path:
    """A tokenizer with BERT's special tokens: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, then the words."""
    return _word_tokenizer(tmp_path / "bert.json", ["[PAD]", "[UNK]", "[CLS]", "[SEP]"], "[UNK]")


HIDDEN, VOCABULARY, POSITIONS = 32, 40, 514
SPEC = (
    manifest()
    .get("bge-reranker-v2-m3")
    .model_copy(
        update={"precisions": {"fp32": PrecisionSpec(revision="1", sources=())}},
    )
)
"""A model that nobody offers as int8, and of which no scores are stored."""


@pytest.fixture
def full(xlmr_json: Path, tmp_path: Path) -> ModelFiles:
    """fp32 files of a tiny XLM-R with a scoring head, in a cache of their own."""
    rng = np.random.default_rng(0)
    sizes: dict[str, tuple[int, ...]] = {
        "embed.word": (VOCABULARY, HIDDEN),
        "embed.position": (POSITIONS, HIDDEN),
        "embed.type": (1, HIDDEN),
    }
    layer = ("query", "key", "value", "attention_out", "up", "down")
    sizes |= {f"0.{name}.weight": (HIDDEN, HIDDEN) for name in layer} | {
        "head.dense.weight": (HIDDEN, HIDDEN),
        "head.out.weight": (HIDDEN, 1),
    }
    weights = {name: (rng.standard_normal(size) * 0.2).astype(np.float32) for name, size in sizes.items()}
    weights |= {name.replace(".weight", ".bias"): np.zeros(size[1], np.float32) for name, size in sizes.items() if name.endswith(".weight")}
    for norm in ("embed.norm", "0.attention_norm", "0.output_norm"):
        weights |= {f"{norm}.weight": np.ones(HIDDEN, np.float32), f"{norm}.bias": np.zeros(HIDDEN, np.float32)}
    folder = tmp_path / "cache" / SPEC.id / "1"
    folder.mkdir(parents=True)
    write_encoder(folder / "model_fp32.onnx", weights, Shape(1, 2, 1e-5, "xlmr", scoring_head=True))
    (folder / "tokenizer.json").write_bytes(xlmr_json.read_bytes())
    return ModelFiles(SPEC, "fp32", "1", folder)
