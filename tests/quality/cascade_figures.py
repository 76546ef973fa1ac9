"""What follows from scored heads: nDCG@10 when the time is up, in two orders, and when the top is settled; and the tables of it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean

from rich.console import Console
from rich.table import Table

from knowledge.models import Candidate
from knowledge.pipeline import merge_head
from reranker.cascade import SHARE
from reranker.settling import Settling, Top
from tests.load.report import Part
from tests.parts.benchmark_page import markdown_table, write_section
from tests.quality.data import Question
from tests.quality.measures import value

TOP_K, TOP = 10, 5
TIMES = (0.25, 0.5, 0.75, 1.0)
"""Of what the large model needs for the whole head."""
STAGES, GRID = (0.1, 0.15, 0.2, 0.25, 0.3), (0.25, 0.4, 0.5, 0.6, 0.75, 0.9)
"""Shares of the time that the small stage takes, and the times over which their gain is averaged."""
CHEAPER = (1 / 7, 1 / 15)
"""Costs of a small model that are tried on the same scores: about that of MiniLM beside bge-reranker-v2-m3, and half of it."""
RULES = tuple(Settling(top, after) for top, last in ((5, 5), (10, 3)) for after in range(1, last + 1))


@dataclass(frozen=True, slots=True)
class Head:
    """A question's candidates in hybrid order, the first `length` of them scored by both models."""

    question: Question
    candidates: Sequence[Candidate]
    length: int
    large: Mapping[str, float]
    small: Mapping[str, float]
    large_ms: float
    small_ms: float

    @property
    def hybrid_order(self) -> list[str]:
        """The passages of the head as they are given."""
        return [candidate.passage.id for candidate in self.candidates[: self.length]]

    @property
    def small_order(self) -> list[str]:
        """Best first by the small model, ties as they are given."""
        return sorted(self.hybrid_order, key=lambda passage: -self.small[passage])

    def swapped(self) -> "Head":
        """The same with the models' parts exchanged."""
        return replace(self, large=self.small, small=self.large, large_ms=self.small_ms, small_ms=self.large_ms)

    def found(self, scored: Collection[str]) -> float:
        """The share of what would be the large model's first TOP that it has scored."""
        best = sorted(self.hybrid_order, key=lambda passage: -self.large[passage])[:TOP]
        return mean(passage in scored for passage in best)

    def ndcg(self, scored: Sequence[str]) -> float:
        """Of the answer if the large model has scored these."""
        order = merge_head(self.candidates, self.length, {passage: self.large[passage] for passage in scored})
        return value("nDCG@10", self.question, [candidate.passage for candidate in order[:TOP_K]])

    def settled(self, rule: Settling) -> list[str]:
        """What is scored, in hybrid order, until the top is settled."""
        top = Top(rule)
        for place, passage in enumerate(self.hybrid_order):
            if top.settled_by(self.large[passage], place):
                return self.hybrid_order[: place + 1]
        return self.hybrid_order


def in_time(head: Head, time: float, cost: float | None) -> list[str]:
    """What the large model has scored after this part of its whole time; with a cost, that of the small model's stage is spent first."""
    order = head.hybrid_order if cost is None else head.small_order
    return order[: int(head.length * max(0.0, time - (cost or 0.0)) + 1e-9)]


def orders_part(data: str, heads: Sequence[Head], large: str, small: str) -> Part:
    """The two orders at the same times."""
    ratio = sum(head.small_ms for head in heads) / sum(head.large_ms for head in heads)
    note = (
        f"{len(heads)} questions, heads of at most {max(head.length for head in heads)}. nDCG@10 with what {large} has scored when time "
        f"is up, and in brackets how much of what would be its first {TOP} is among that. Time is what it needs for the whole head; the "
        f"small stage is taken off it. {small} needs {ratio:.2f} of it for the same head, measured in turns; the rows with other costs "
        f"take the same scores and reckon with a cheaper small model. *: the stage is more than {SHARE:.0%} of the time, so the service "
        f"leaves it out and does as in the first row. Not reranked at all: {_ndcg(heads, lambda _: []):.3f}."
    )
    part = Part(f"{data}: {small} before {large}", note, ["order", "cost of the stage", *(f"{time:.0%} of the time" for time in TIMES)])
    costs = [("hybrid", None), ("small model, as measured", ratio), *(("small model, reckoned", cost) for cost in (*CHEAPER, 0.0))]
    for name, cost in costs:
        row = [name, "" if cost is None else f"{cost:.2f}"]
        for time in TIMES:
            scored = [in_time(head, time, cost) for head in heads]
            row.append(_figures(heads, scored) + ("*" if cost is not None and cost > SHARE * time else ""))
        part.rows.append(row)
    return part


def settled_part(data: str, heads: Sequence[Head], large: str) -> Part:
    """How much an early stop saves, and what it costs."""
    whole = _ndcg(heads, lambda head: head.hybrid_order)
    note = (
        f"The same heads, scored by {large} in hybrid order until so many in a row (RERANK_SETTLED_AFTER) have missed the top "
        f"(RERANK_SETTLED_TOP, or `top_n`). nDCG@10 with all scores {whole:.3f}, with none {_ndcg(heads, lambda _: []):.3f}. Kept: how "
        f"much of what would be its first {TOP} was scored."
    )
    part = Part(f"{data}: early stop, {large}", note, ["top", "settled after", "runs saved", "nDCG@10", "difference", f"first {TOP} kept"])
    for rule in RULES:
        scored = [head.settled(rule) for head in heads]
        saved = 1 - sum(map(len, scored)) / sum(head.length for head in heads)
        found = mean(head.ndcg(each) for head, each in zip(heads, scored, strict=True))
        kept = mean(head.found(each) for head, each in zip(heads, scored, strict=True))
        part.rows.append([str(rule.top), str(rule.after), f"{saved:.0%}", f"{found:.3f}", f"{found - whole:+.3f}", f"{kept:.0%}"])
    return part


def _ndcg(heads: Sequence[Head], scored: Callable[[Head], Sequence[str]]) -> float:
    return mean(head.ndcg(scored(head)) for head in heads)


def _figures(heads: Sequence[Head], scored: Sequence[Sequence[str]]) -> str:
    pairs = list(zip(heads, scored, strict=True))
    return f"{mean(head.ndcg(each) for head, each in pairs):.3f} ({mean(head.found(each) for head, each in pairs):.0%})"


def share_part(measured: Mapping[str, Sequence[Head]]) -> Part:
    """Up to which share of the time the small model's order wins more than its stage costs."""
    note = (
        f"By the large model (column), percentage points more or less of its first {TOP} that are scored than in hybrid order, when the "
        f"small stage takes this share of the time that there is; on average over {', '.join(f'{time:.0%}' for time in GRID)} of the "
        f"time for the whole head. The service draws the line at {SHARE:.0%}."
    )
    part = Part("What the small stage may cost", note, ["share of the time", *measured])
    for share in STAGES:
        gains = [mean(_gain(heads, time, share) for time in GRID) for heads in measured.values()]
        part.rows.append([f"{share:.0%}", *(f"{100 * gain:+.1f}" for gain in gains)])
    return part


def _gain(heads: Sequence[Head], time: float, share: float) -> float:
    return mean(head.found(in_time(head, time, share * time)) - head.found(in_time(head, time, None)) for head in heads)


def parts_of(measured: Mapping[str, Sequence[Head]], large: str, small: str) -> list[Part]:
    """The tables of all data sets, each model once as the large one."""
    parts: list[Part] = []
    columns: dict[str, Sequence[Head]] = {}
    for data, heads in measured.items():
        swapped = [head.swapped() for head in heads]
        parts += [orders_part(data, heads, large, small), orders_part(data, swapped, small, large), settled_part(data, heads, large)]
        columns |= {f"{data}, {large}": heads, f"{data}, {small}": swapped}
    return [share_part(columns), *parts]


def report(parts: Sequence[Part], load_before: str) -> None:
    """Print and record."""
    console, lines = Console(width=170), [f"Load of the machine before the run: {load_before}."]
    for part in parts:
        table = Table(*part.header, title=part.title, title_justify="left", show_edge=False)
        for row in part.rows:
            table.add_row(*row)
        console.print(table, "")
        lines += ["", f"### {part.title}", "", part.note, "", *markdown_table(part.header, part.rows)]
    title = "A small model first, and an early stop, in the reranker-service"
    write_section("quality cascade", title, "python -m tests.quality.cascade --data DIR", lines)
