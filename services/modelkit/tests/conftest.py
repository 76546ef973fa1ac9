"""Real models for the tests marked `models`, from the user's own cache; and a tokenizer of a handful of words."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from modelkit import CrossEncoder, Encoder, ensure, usable_cpus

WORDS = ["query", "passage", ":", "wasser", "erde", "sonne", "mond", "s", "sep", "<", ">", "/", "[", "]", "cls"]


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
