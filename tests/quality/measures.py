"""The measures: nDCG@10 by ir-measures (trec_eval's linear gains), and context quality."""

from collections.abc import Sequence

import ir_measures
from ir_measures import nDCG

from knowledge.models import Passage
from tests.quality.data import Question


def value(measure: str, question: Question, passages: Sequence[Passage]) -> float:
    """The measure of one ranking of one question, 0..1."""
    return _ndcg(question, passages) if measure == "nDCG@10" else context_quality(question, passages)


def context_quality(question: Question, passages: Sequence[Passage]) -> float:
    """The share of the expected topics that the passages together show."""
    text = "\n".join(f"{passage.title}\n{passage.content}" for passage in passages)
    return sum(topic.shown_in(text) for topic in question.topics) / len(question.topics)


def _ndcg(question: Question, passages: Sequence[Passage]) -> float:
    judged = [ir_measures.Qrel("q", document, grade) for document, grade in question.grades.items()]
    run = [ir_measures.ScoredDoc("q", passage.document_id, -float(rank)) for rank, passage in enumerate(passages)]
    found = list(ir_measures.iter_calc([nDCG @ 10], judged, run))
    return float(found[0].value) if found else 0.0
