"""The budget of what is scored: `INITIAL_K x MAX_DOCUMENT_CHARS <= RERANK_SCORED_CHARS_BUDGET`, in code points.

It limits what a reranker is sent, never how many results come back. `settings` refuses values that break it; this module
keeps a request within them.
"""

from collections.abc import Sequence

import regex

from knowledge.models import Candidate

GRAPHEME = regex.compile(r"\X")
MAX_LOOKAHEAD = 64
"""Code points beyond the limit that are looked at: enough to see that a grapheme goes on."""


def cut(text: str, max_chars: int) -> str:
    """The longest prefix of at most `max_chars` code points that ends at a grapheme boundary.

    Graphemes are those of Unicode's UAX #29 (extended). A first grapheme that alone is longer than the limit is cut inside:
    an empty text would lose the passage.
    """
    if len(text) <= max_chars:
        return text
    end = 0
    # From the start: where a pair of regional indicators begins cannot be told from its middle.
    for match in GRAPHEME.finditer(text, 0, max_chars + MAX_LOOKAHEAD):
        if match.end() > max_chars:
            break
        end = match.end()
    return text[: end or max_chars]


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
