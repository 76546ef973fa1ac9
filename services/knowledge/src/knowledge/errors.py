"""Every error of the gateway on one page.

KnowledgeError
├── RequestError            the caller's fault or right: answered as a problem with `status` and `code`
│   ├── InvalidRequest      422  names the field and the limit
│   ├── Unauthenticated     401  no token, or one that does not hold
│   ├── Forbidden           403  the token holds but lacks the role
│   ├── NotFound            404  absent, or hidden: the same answer
│   ├── KeysUnavailable     503  the signing keys cannot be fetched: nobody's token is wrong
│   ├── SearchUnavailable   503  no leg of any scope answered
│   ├── RerankerRefused     502  the provider is misconfigured and RERANKER_PERMANENT_ERRORS=error
│   ├── DeadlineExceeded    504  the time was gone before any leg answered
│   └── Overloaded          503  too many searches in flight; nothing was done
├── BackendError            the search backend failed; the store's message holds no document text
│   └── IndexMismatch       the index was built for something else: stops the start
├── EmbeddingError          the embedding-service failed or was late
└── RerankError             a provider failed, with the fallback reason
"""

from enum import StrEnum


class FallbackReason(StrEnum):
    """Why the caller got the hybrid order instead of the reranked one (closed set)."""

    DEADLINE = "deadline"
    CLIENT_TIMEOUT = "client_timeout"
    TOO_LATE = "too_late"
    OVERLOADED = "overloaded"
    LOADING = "loading"
    RATE_LIMITED = "rate_limited"
    TRANSPORT = "transport"
    HTTP_STATUS = "http_status"
    REJECTED = "rejected"
    MALFORMED_RESPONSE = "malformed_response"
    CIRCUIT_OPEN = "circuit_open"
    MISCONFIGURED = "misconfigured"


class KnowledgeError(Exception):
    """Base of everything the gateway raises on purpose."""


class RequestError(KnowledgeError):
    """An error that becomes the caller's answer."""

    status = 500
    code = "internal"

    def __init__(self, detail: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.retry_after_s = retry_after_s


class InvalidRequest(RequestError):
    """The request breaks a limit; `field` is its name."""

    status = 422
    code = "invalid_request"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class Unauthenticated(RequestError):
    """No token, or one that does not hold."""

    status = 401
    code = "unauthenticated"


class Forbidden(RequestError):
    """The identity is known but lacks the role for this."""

    status = 403
    code = "forbidden"


class NotFound(RequestError):
    """There is nothing here that this identity may see."""

    status = 404
    code = "not_found"


class KeysUnavailable(RequestError):
    """The JWKS cannot be fetched, so no signature can be judged."""

    status = 503
    code = "keys_unavailable"


class SearchUnavailable(RequestError):
    """All legs of all scopes failed."""

    status = 503
    code = "search_unavailable"


class RerankerRefused(RequestError):
    """A latched misconfiguration, where the operator chose errors over fallbacks."""

    status = 502
    code = "reranker_misconfigured"


class DeadlineExceeded(RequestError):
    """The request's time was gone before any leg had answered."""

    status = 504
    code = "deadline_exceeded"


class Overloaded(RequestError):
    """More searches in flight than allowed."""

    status = 503
    code = "overloaded"


class BackendError(KnowledgeError):
    """The search backend failed as a whole (connection, time-out, refused write)."""


class IndexMismatch(BackendError):
    """The index does not fit the settings or the embedding model: the message says how and two ways out."""


class EmbeddingError(KnowledgeError):
    """The embedding-service gave no usable vectors."""


class RerankError(KnowledgeError):
    """A provider gave no usable scores.

    Args:
        reason: the word for body, header, span, metric and log.
        status: the provider's HTTP status, if there was one.
    """

    def __init__(self, reason: FallbackReason, *, status: int | None = None) -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.status = status
