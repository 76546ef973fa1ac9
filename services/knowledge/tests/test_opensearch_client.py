"""What is told of a refusal of the security plugin and of a connection that did not come about: what to look at; no name, role or text."""

import ssl
from typing import Any

import pytest
from opensearchpy.exceptions import AuthenticationException, AuthorizationException, TransportError
from opensearchpy.exceptions import ConnectionError as Unreachable

from knowledge.adapters.opensearch_client import translated
from knowledge.errors import BackendError

USER = "and User [name=secret-name, backend_roles=[secret-role], requestedTenant=null]"


def told(error: Exception) -> str:
    """The message of ours for an error of the client's."""
    with pytest.raises(BackendError) as caught, translated():
        raise error
    message = str(caught.value)
    assert "secret" not in message
    return message


def refusal(reason: object) -> dict[str, Any]:
    """As the security plugin answers."""
    return {"error": {"type": "security_exception", "reason": reason, "root_cause": []}, "status": 403}


@pytest.mark.parametrize(
    "permissions", ["indices:data/read/search", "indices:admin/create, indices:admin/aliases", "indices:data/write/bulk[s]"]
)
def test_a_missing_permission_is_named(permissions: str) -> None:
    """One or several; whom and what else the sentence names stays behind."""
    error = AuthorizationException(403, "security_exception", refusal(f"no permissions for [{permissions}] {USER}"))
    assert told(error) == f"OpenSearch refused: 403 security_exception: the role lacks {permissions}."


@pytest.mark.parametrize(
    "info",
    [
        refusal(f"no permissions for [secret-document] {USER}"),
        refusal(f"something else {USER}"),
        refusal(None),
        {"error": f"secret {USER}"},
        {"error": None},
        "secret text",
        None,
    ],
)
def test_what_is_no_permission_is_not_quoted(info: Any) -> None:
    """Whatever the answer looks like."""
    assert told(AuthorizationException(403, "security_exception", info)) == "OpenSearch refused: 403 security_exception."


def test_an_unknown_caller_is_told_where_the_name_comes_from() -> None:
    """The plugin answers 401 with plain text."""
    assert "OPENSEARCH_USERNAME and OPENSEARCH_PASSWORD" in told(AuthenticationException(401, "Unauthorized secret", "Unauthorized secret"))
    assert told(TransportError(400, "some_exception", {})) == "OpenSearch refused: 400 some_exception."


def test_a_connection_that_does_not_come_about() -> None:
    """The class of the cause is named; where it says too little, also the setting."""

    class ClientConnectorCertificateError(ssl.SSLError):
        """Named as aiohttp names it, which wants a whole connection to make one."""

    assert "see OPENSEARCH_CA_FILE" in told(Unreachable("N/A", "secret", ClientConnectorCertificateError("secret")))
    assert told(Unreachable("N/A", "secret", OSError("secret"))) == "OpenSearch cannot be reached (OSError)."
