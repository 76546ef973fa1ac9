"""JSON by the quicker library where it is not quite the standard library's."""

import json

import pytest
from opensearchpy.exceptions import SerializationError

from knowledge.adapters.opensearch_client import _Json
from knowledge.api.answers import AnswerResponse

BEYOND_64_BITS = 2**64


def test_an_answer_may_hold_whole_numbers_beyond_64_bits() -> None:
    """Metadata comes from content owners, and JSON sets no limit."""
    body = AnswerResponse({"metadata": {"number": BEYOND_64_BITS}}).body
    assert json.loads(bytes(body)) == {"metadata": {"number": BEYOND_64_BITS}}


def test_a_request_to_opensearch_may_hold_them_too() -> None:
    """As text, because the client joins lines of a request as text."""
    assert _Json().dumps({"number": BEYOND_64_BITS, "umlaut": "ä"}) == f'{{"number":{BEYOND_64_BITS},"umlaut":"ä"}}'


def test_text_and_bytes_pass_as_they_are() -> None:
    """A bulk request is encoded before."""
    assert [_Json().dumps(one) for one in ("{}\n", b"{}\n")] == ["{}\n", b"{}\n"]


@pytest.mark.parametrize("answer", ["<html>Fehler</html>", "[" * 5000 + "]" * 5000, ""])
def test_what_is_no_json_is_refused_without_being_quoted(answer: str) -> None:
    """An answer may hold a passage."""
    with pytest.raises(SerializationError) as raised:
        _Json().loads(answer)
    assert "Fehler" not in str(raised.value)
