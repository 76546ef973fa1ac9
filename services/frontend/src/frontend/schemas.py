"""The bodies of the pages' API. Unknown fields are refused; the gateway judges the rest."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

MAX_QUERY_CHARS = 4096
MAX_TOP_K = 50


class View(StrEnum):
    """Which page asks."""

    CHAT = "chat"
    GLOSSARY = "glossary"
    DIAGNOSIS = "diagnosis"
    INSPECTOR = "inspector"


TOP_K = {View.CHAT: 10, View.GLOSSARY: 5, View.DIAGNOSIS: 8, View.INSPECTOR: 10}
"""How many passages a page shows when the person chose no number."""

QueryText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_QUERY_CHARS)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SearchRequest(_Request):
    """A search by one of the pages."""

    query: QueryText
    view: View = View.CHAT
    top_k: Annotated[int, Field(ge=1, le=MAX_TOP_K)] | None = None
    rerank: bool = True
    deadline_ms: Annotated[int, Field(ge=100, le=600_000)] | None = None
    explain: bool = False

    def for_gateway(self) -> dict[str, Any]:
        """The body of the gateway's own `/search`."""
        body: dict[str, Any] = {"query": self.query, "top_k": self.top_k or TOP_K[self.view], "rerank": self.rerank}
        if self.deadline_ms is not None:
            body["deadline_ms"] = self.deadline_ms
        if self.explain:
            body["explain"] = True
        return body


class AnswerRequest(_Request):
    """A question to be answered in words."""

    query: QueryText
    view: View = View.CHAT
