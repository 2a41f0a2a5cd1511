"""Why a provider gave no answer, in words that do not depend on which it was."""

from __future__ import annotations

from typing import Literal

import msgspec

# What to do about it hangs on the kind; which kind it is, a dialect's reader finds out.
FailureKind = Literal[
    "bad_request",  # 400, 422: the request is at fault; nobody else will like it better
    "context_length",  # more tokens than the model takes
    "content_policy",  # refused for what it says
    "authentication",  # 401: this key is wrong
    "permission",  # 403: this key may not
    "payment",  # 402, or a quota that money would raise
    "not_found",  # 404: no such model or deployment here
    "too_large",  # 413: too many bytes
    "account_limit",  # this request alone is more than the account there may ask; another's may do
    "rate_limit",  # 429
    "overloaded",  # 503, 529
    "timeout",  # 408, 504, or we waited too long
    "server",  # 5xx
    "network",  # no connection, or one that broke
    "damaged",  # what came back is not what the dialect says
    "reply_too_large",  # what came back is more than is taken, as the request may have wanted
]


class ProviderError(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's error as JSON of its dialect, without secrets of ours."""

    dialect: str
    body: str


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's failure."""

    kind: FailureKind
    message: str
    """The provider's, without our secrets."""
    for_client: str | None = None
    """What clients read instead of the message; None: the message."""
    status: int | None = None
    """HTTP status, None if there was no reply."""
    code: str | None = None
    """The provider's own, if any."""
    param: str | None = None
    """The provider's own, if any."""
    retry_after_s: float | None = None
    """As the provider requested."""
    request_id: str | None = None
    as_told: ProviderError | None = None
    """The whole error, for clients of the same dialect; None if they get it in our words."""
