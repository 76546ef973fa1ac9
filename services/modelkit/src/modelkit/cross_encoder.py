"""Query and passage in one run of a cross-encoder."""

from modelkit.cpu import Cpus
from modelkit.session import Stop, open_session
from modelkit.store import ModelFiles
from modelkit.tokenize import QueryTokens, TextTokenizer, Tokens


class CrossEncoder:
    """A model that scores a pair. One pair a run: the score is a function of the pair alone.

    Args:
        files: verified files of a cross-encoder.
        cpus: what the session may use.
        threads: threads of one run.
    """

    def __init__(self, files: ModelFiles, cpus: Cpus, *, threads: int = 1) -> None:
        self.spec = files.spec
        self._tokenizer = TextTokenizer(files.tokenizer, files.spec.template, files.spec.max_tokens)
        self._model = open_session(files, cpus, threads=threads)

    def prepare(self) -> None:
        """Do once what would make first runs slow."""
        self._model.prepare(self.spec.max_tokens)

    def query(self, text: str) -> QueryTokens:
        """The query, tokenised once for all its pairs."""
        return self._tokenizer.query(text)

    def pair(self, query: QueryTokens, passage: str) -> Tokens:
        """The pair as it will be run."""
        return self._tokenizer.pair(query, passage)

    def logit(self, pair: Tokens, stop: Stop | None = None) -> float:
        """The raw score of a pair; not finite if the model broke down on it."""
        return float(self._model.run(pair.ids, pair.type_ids, stop)[0])
