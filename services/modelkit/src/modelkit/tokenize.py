"""Texts to token ids: cleaned, cut by our own rules, and unable to smuggle in a special token.

The sequences are put together here from the ids of each text, not by the tokenizer's template: so the query is cut first (to half
the window), the passage gets what is left, and an id that only the template may place is dropped wherever a text produced it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from servicekit.hygiene import LONE_SURROGATES, clean_text

Template = Literal["bert", "xlmr"]

_SPECIAL = {"bert": ("[CLS]", "[SEP]", "[UNK]"), "xlmr": ("<s>", "</s>", "<unk>")}


def mend_surrogates(text: str) -> str:
    """Put U+FFFD in the place of each lone surrogate, which no encoder of Unicode accepts; the length stays."""
    return LONE_SURROGATES.sub("\ufffd", text)


def is_blank(text: str) -> bool:
    """Whether nothing is left of the text once it is cleaned."""
    return not clean_text(text).strip()


@dataclass(frozen=True, slots=True)
class Tokens:
    """One sequence, ready to run.

    Attributes:
        ids: token ids, [S].
        type_ids: which of two texts a token belongs to where the model wants to know, [S].
        content: True for tokens of the text itself (of a pair: the passage), False for special tokens and the prefix, [S].
        truncated: whether some of the text did not fit.
    """

    ids: NDArray[np.int64]
    type_ids: NDArray[np.int64]
    content: NDArray[np.bool_]
    truncated: bool

    def __len__(self) -> int:
        return int(self.ids.size)


@dataclass(frozen=True, slots=True)
class QueryTokens:
    """A query's ids, cut to half the window; made once, used for every pair."""

    ids: tuple[int, ...]
    truncated: bool


class TextTokenizer:
    """A `tokenizer.json` with the special tokens in our hands.

    Args:
        path: the file.
        template: how one text and a pair of texts are put together.
        max_tokens: the model's window, special tokens included.
    """

    def __init__(self, path: Path, template: Template, max_tokens: int) -> None:
        self._tokenizer = Tokenizer.from_file(str(path))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        begin, end, unknown = _SPECIAL[template]
        self._begin, self._end = self._id_of(begin), self._id_of(end)
        added = {i: token.content for i, token in self._tokenizer.get_added_tokens_decoder().items() if token.special}
        # Unigram vocabularies hold the special tokens as pieces too, reached by look-alikes that normalisation folds (full-width
        # brackets): breaking up the literals is not enough, the ids themselves are dropped.
        self._forbidden = frozenset(added) - {self._id_of(unknown)}
        self._literals = re.compile("|".join(re.escape(text) for text in added.values()), re.IGNORECASE)
        self._template = template
        self.max_tokens = max_tokens

    def _id_of(self, token: str) -> int:
        found = self._tokenizer.token_to_id(token)
        if found is None:
            raise ValueError(f"the tokenizer has no {token}")
        return int(found)

    def _encode(self, text: str, prefix: str = "") -> tuple[list[int], list[bool]]:
        """Ids of prefix and text together, and which of them are the text's own."""
        # A space after the first character leaves the words of `</s>` and `[SEP]` in place and takes away their meaning.
        safe = self._literals.sub(lambda found: f"{found[0][0]} {found[0][1:]}", clean_text(text))
        encoding = self._tokenizer.encode(prefix + safe, add_special_tokens=False)
        ids: list[int] = []
        content: list[bool] = []
        for token, (_, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if token not in self._forbidden:
                ids.append(token)
                content.append(end > len(prefix))
        return ids, content

    def single(self, text: str, prefix: str = "") -> Tokens:
        """One text behind its prefix, cut to the window."""
        ids, content = self._encode(text, prefix)
        room = self.max_tokens - 2
        whole = [self._begin, *ids[:room], self._end]
        return _tokens(whole, [False, *content[:room], False], truncated=len(ids) > room)

    def query(self, text: str) -> QueryTokens:
        """The query of pairs, cut to half the window."""
        ids, _ = self._encode(text)
        room = self.max_tokens // 2
        return QueryTokens(tuple(ids[:room]), len(ids) > room)

    def pair(self, query: QueryTokens, passage: str) -> Tokens:
        """Query and passage as one sequence; the passage gets the room that the query leaves."""
        ids, _ = self._encode(passage)
        middle = [self._end] if self._template == "bert" else [self._end, self._end]
        head = [self._begin, *query.ids, *middle]
        room = self.max_tokens - len(head) - 1
        tail = [*ids[:room], self._end]
        second = 1 if self._template == "bert" else 0
        content = [*([False] * len(head)), *([True] * (len(tail) - 1)), False]
        tokens = _tokens([*head, *tail], content, truncated=query.truncated or len(ids) > room)
        tokens.type_ids[len(head) :] = second
        return tokens


def _tokens(ids: Sequence[int], content: Sequence[bool], *, truncated: bool) -> Tokens:
    return Tokens(np.array(ids, np.int64), np.zeros(len(ids), np.int64), np.array(content, np.bool_), truncated)
