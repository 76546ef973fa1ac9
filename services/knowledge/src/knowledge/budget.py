"""The budget of what is scored: `INITIAL_K x MAX_DOCUMENT_CHARS <= RERANK_SCORED_CHARS_BUDGET`, in code points.

It limits what a reranker is sent, never how many results come back.
"""

from collections.abc import Sequence

import regex

from knowledge.models import Candidate

GRAPHEME = regex.compile(r"\X")


def settings_that_fit(initial_k: int, max_document_chars: int, budget: int) -> tuple[str, str] | None:
    """None if the settings fit the budget, else two changes of which either makes them fit."""
    if initial_k * max_document_chars <= budget:
        return None
    fewer = f"RERANKER_INITIAL_K={max(1, budget // max_document_chars)} with RERANKER_MAX_DOCUMENT_CHARS="
    fewer += str(min(max_document_chars, budget))
    shorter = f"RERANKER_INITIAL_K={min(initial_k, budget)} with RERANKER_MAX_DOCUMENT_CHARS={max(1, budget // initial_k)}"
    return fewer, shorter


def cut(text: str, max_chars: int) -> str:
    """The longest prefix of at most `max_chars` code points that ends at a grapheme boundary.

    Graphemes are those of Unicode's UAX #29 (extended). A first grapheme that alone is longer than the limit is cut inside:
    an empty text would lose the passage.
    """
    if len(text) <= max_chars:
        return text
    # A grapheme is rarely long: looking back a little finds the boundary without walking the whole text.
    start = max(0, max_chars - 64)
    end = start
    for match in GRAPHEME.finditer(text, start):
        if match.end() > max_chars:
            break
        end = match.end()
    return text[:end] if end > start else text[:max_chars]


def share_heads(scopes: Sequence[Sequence[Candidate]], depth: int) -> list[int]:
    """How many of each scope's first candidates are sent, when all scopes share `depth` pairs.

    Pairs are handed out round-robin by hybrid rank; a chunk of several scopes costs one pair. Each head is a prefix: the first
    candidate of a scope that gets no pair ends its head.
    """
    heads, ended, sent = [0] * len(scopes), [not scope for scope in scopes], set[str]()
    while not all(ended):
        for index, scope in enumerate(scopes):
            if ended[index]:
                continue
            chunk = scope[heads[index]].passage.id
            if chunk not in sent and len(sent) >= depth:
                ended[index] = True
                continue
            sent.add(chunk)
            heads[index] += 1
            ended[index] = heads[index] >= len(scope)
    return heads
