"""What an error of a model request means for the engine: how it is called, whether the same request may be sent again, and
how long the provider asked to wait.

What pydantic-ai 2.68 with openai 3.57 and anthropic 2.14 raises was tried against a server on loopback (tests/agent/
test_faults.py holds each line of this table):

| what happened                         | raised                                              | kind         | again |
|---------------------------------------|-----------------------------------------------------|--------------|-------|
| 429 with Retry-After                  | ModelRateLimitError, `retry_after` in seconds       | rate_limited | yes   |
| 429 insufficient_quota, 402           | ModelQuotaExceededError                             | refused      | no    |
| 500, 502, 504                         | ModelServerError                                    | server       | yes   |
| 503, 529                              | ModelUnavailableError, ModelOverloadedError         | server       | yes   |
| refused or dropped connection         | ModelConnectionError (`phase` connect or read)      | network      | yes   |
| no answer within `timeout`            | ModelTimeoutError                                   | network      | yes   |
| a chunk or a body that is not JSON    | ModelAPIError "Failed to decode response as JSON"   | malformed    | yes   |
| too long for the context              | ModelContextWindowExceededError                     | context      | no    |
| 401, 403                              | ModelAuthenticationError                            | auth         | no    |
| 400, 404, 422, a content filter       | ModelRequestRejectedError, ContentFilterError       | refused      | no    |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from msgspec import Struct
from pydantic_ai import exceptions as raised

Kind = Literal["rate_limited", "server", "network", "context", "auth", "refused", "malformed", "other"]


class Fault(Struct, frozen=True):
    """An error of a model request.  `retry_after_s` is the wait in seconds that the provider asked for, if it said."""

    kind: Kind
    retry_after_s: float | None
    retryable: bool
    message: str


_BY_CLASS: Final[tuple[tuple[type[Exception], Kind], ...]] = (
    (raised.ModelRateLimitError, "rate_limited"),
    (raised.ModelQuotaExceededError, "refused"),
    (raised.ModelUnavailableError, "server"),
    (raised.ModelServerError, "server"),
    (raised.ModelConnectionError, "network"),
    (raised.ModelRequestTimeout, "network"),
    (raised.ModelContextWindowExceededError, "context"),
    (raised.ModelAuthenticationError, "auth"),
    (raised.ModelRequestRejectedError, "refused"),
    (raised.ContentFilterError, "refused"),
    (raised.OutputTokenLimitExceeded, "refused"),
    (raised.UnexpectedModelBehavior, "malformed"),
)
_PASSING: Final[frozenset[Kind]] = frozenset(("rate_limited", "server", "network", "malformed"))
_TOO_LONG: Final = ("context length", "context window", "context size", "context_length_exceeded", "prompt is too long")


def classify(error: BaseException, *, scrub: Callable[[str], str] = str) -> Fault:
    """What `error`, raised by a request to a model, means.  `scrub` takes secrets out of the message (`Secrets.scrub`): a
    provider may repeat the key that it refused.
    """
    kind = _kind(error)
    retryable = kind in _PASSING
    if isinstance(error, raised.ModelHTTPError) and error.provider_retry_hint is not None and kind not in ("context", "auth"):
        retryable = error.provider_retry_hint
    wait = error.retry_after if isinstance(error, raised.ModelAPIError) else None
    return Fault(kind, wait, retryable, scrub(_message(error)))


def _kind(error: BaseException) -> Kind:
    if isinstance(error, raised.ModelRequestRejectedError) and _says_too_long(error):
        return "context"
    for kind_of, kind in _BY_CLASS:
        if isinstance(error, kind_of):
            return kind
    if isinstance(error, raised.ModelHTTPError):
        return _by_status(error)
    if isinstance(error, raised.ModelAPIError):
        return "malformed" if "JSON" in error.message else "other"
    if isinstance(error, ConnectionError | TimeoutError):
        return "network"
    return "other"


def _by_status(error: raised.ModelHTTPError) -> Kind:
    """For an error without a category: one that a script or somebody's own model raised."""
    status = error.status_code
    if status in (401, 403):
        return "auth"
    if status == 429:
        return "rate_limited"
    if status in (408, 409, 425) or status >= 500:
        return "server"
    return "context" if status == 413 or _says_too_long(error) else "refused"


def _says_too_long(error: raised.ModelAPIError) -> bool:
    text = f"{error.message} {error.body}".lower()
    return any(phrase in text for phrase in _TOO_LONG)


def _message(error: BaseException) -> str:
    """What the provider said, without the wrapping; never the headers."""
    body = getattr(error, "body", None)
    if isinstance(body, dict):
        inner = body.get("error", body)
        said = inner.get("message") if isinstance(inner, dict) else inner
        if isinstance(said, str) and isinstance(error, raised.ModelHTTPError):
            return f"{error.status_code}: {said}"
        if isinstance(said, str):
            return said
    return str(error) or type(error).__name__
