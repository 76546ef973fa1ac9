"""Calls to OpenSearch: one client, and its errors as ours. The client's quote the request or parts of a document; ours do not."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
from opensearchpy import AsyncOpenSearch, JSONSerializer
from opensearchpy.exceptions import ConnectionError as Unreachable
from opensearchpy.exceptions import ConnectionTimeout, OpenSearchException, SerializationError, TransportError

from knowledge.errors import BackendError

ABSENT = "index_not_found_exception"
CALL_TIMEOUT_S = 10.0
ERROR_TYPE = re.compile(r"[a-z_]{1,80}")
PERMISSION = re.compile(r"no permissions for \[((?:(?:indices|cluster):[a-z_/*]+(?:\[[a-z/*]+\])?(?:, )?)+)\]")
"""What the security plugin says is missing. The rest of its sentence holds the user and the roles."""

UNREACHED = {
    "ClientConnectorCertificateError": "its certificate is of no authority that is trusted, or not for this host: see OPENSEARCH_CA_FILE",
    "ClientConnectorSSLError": "no TLS came about: see OPENSEARCH_URL and OPENSEARCH_CLIENT_CERT_FILE",
    "ServerDisconnectedError": "it closed the connection, as a cluster with TLS does when OPENSEARCH_URL begins with http:",
}
"""What the client's less obvious errors mean."""


class IndexAbsent(BackendError):
    """There is no such index or alias."""


def encode(value: Any) -> bytes:
    """A value as JSON.

    Raises:
        TypeError, ValueError: it is none.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        # Whole numbers beyond 64 bits are JSON too.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class _Json(JSONSerializer):
    """The client's JSON by a quicker library: an answer of a hundred passages is the largest part of a search's work here."""

    def loads(self, s: str | bytes) -> Any:
        try:
            return orjson.loads(s)
        except ValueError as error:
            # The client's own error would quote the answer.
            raise SerializationError("not JSON") from error

    def dumps(self, data: Any) -> Any:
        # The client joins the lines of a request as text.
        return data if isinstance(data, str | bytes) else encode(data).decode()


def connect(
    url: str,
    *,
    username: str | None,
    password: str | None,
    ca_file: Path | None,
    pool_size: int,
    client_certificate: tuple[Path, Path] | None = None,
) -> AsyncOpenSearch:
    """A client that never retries by itself. The cluster's certificate is always checked."""
    options: dict[str, Any] = {}
    if username is not None:
        options["http_auth"] = (username, password or "")
    if ca_file is not None:
        options["ca_certs"] = str(ca_file)
    if client_certificate is not None:
        options["client_cert"], options["client_key"] = map(str, client_certificate)
    return AsyncOpenSearch(
        hosts=[url],
        timeout=CALL_TIMEOUT_S,
        pool_maxsize=pool_size,
        max_retries=0,
        retry_on_timeout=False,
        serializer=_Json(),
        **options,
    )


def error_type(error: object) -> str:
    """OpenSearch's word for an error; only a word, since longer texts quote the request."""
    return error if isinstance(error, str) and ERROR_TYPE.fullmatch(error) else "unnamed error"


def _refusal(error: TransportError) -> str:
    """Status and one word; with security also what to look at."""
    said = f"OpenSearch refused: {error.status_code} {error_type(error.error)}"
    if error.status_code == 401:
        return f"{said}: it does not know who calls, see OPENSEARCH_USERNAME and OPENSEARCH_PASSWORD, or the client certificate."
    reason = error.info.get("error", {}) if isinstance(error.info, dict) else {}
    found = PERMISSION.search(str(reason.get("reason", ""))) if isinstance(reason, dict) else None
    return f"{said}: the role lacks {found[1]}." if found else f"{said}."


@contextmanager
def translated() -> Iterator[None]:
    """Raise BackendError for whatever the client raises; what it quotes stays behind.

    Raises:
        IndexAbsent: there is no such index or alias.
        BackendError: unreachable, late, refused, or an answer that is none.
    """
    try:
        yield
    except ConnectionTimeout:
        raise BackendError("OpenSearch was late.") from None
    except Unreachable as error:
        name = type(error.info).__name__
        hint = f": {UNREACHED[name]}" if name in UNREACHED else ""
        raise BackendError(f"OpenSearch cannot be reached ({name}){hint}.") from None
    except TransportError as error:
        if error_type(error.error) == ABSENT:
            raise IndexAbsent("There is no index behind the alias.") from None
        raise BackendError(_refusal(error)) from None
    except (OpenSearchException, AttributeError, KeyError, TypeError, ValueError) as error:
        raise BackendError(f"OpenSearch gave an answer that is none ({type(error).__name__}).") from None
