"""Calls to OpenSearch: one client, and its errors as ours. The client's quote the request or parts of a document; ours do not."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opensearchpy import AsyncOpenSearch
from opensearchpy.exceptions import ConnectionError as Unreachable
from opensearchpy.exceptions import ConnectionTimeout, OpenSearchException, TransportError

from knowledge.errors import BackendError

ABSENT = "index_not_found_exception"
CALL_TIMEOUT_S = 10.0
ERROR_TYPE = re.compile(r"[a-z_]{1,80}")


class IndexAbsent(BackendError):
    """There is no such index or alias."""


def connect(url: str, *, username: str | None, password: str | None, ca_file: Path | None, pool_size: int) -> AsyncOpenSearch:
    """A client that never retries by itself. Certificates are always checked."""
    options: dict[str, Any] = {}
    if username is not None:
        options["http_auth"] = (username, password or "")
    if ca_file is not None:
        options["ca_certs"] = str(ca_file)
    return AsyncOpenSearch(
        hosts=[url],
        timeout=CALL_TIMEOUT_S,
        pool_maxsize=pool_size,
        max_retries=0,
        retry_on_timeout=False,
        **options,
    )


def error_type(error: object) -> str:
    """OpenSearch's word for an error; only a word, since longer texts quote the request."""
    return error if isinstance(error, str) and ERROR_TYPE.fullmatch(error) else "unnamed error"


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
        raise BackendError(f"OpenSearch cannot be reached ({type(error.info).__name__}).") from None
    except TransportError as error:
        kind = error_type(error.error)
        if kind == ABSENT:
            raise IndexAbsent("There is no index behind the alias.") from None
        raise BackendError(f"OpenSearch refused: {error.status_code} {kind}.") from None
    except (OpenSearchException, AttributeError, KeyError, TypeError, ValueError) as error:
        raise BackendError(f"OpenSearch gave an answer that is none ({type(error).__name__}).") from None
