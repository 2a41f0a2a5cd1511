"""The HTTP status and headers of a failure, for Cohere and Mistral."""

from __future__ import annotations

import math
from email.utils import parsedate_to_datetime

from headrace.protocol.neutral.dialect import Headers
from headrace.protocol.neutral.failure import FailureKind

_KINDS: dict[int, FailureKind] = {
    401: "authentication",
    402: "payment",
    403: "permission",
    404: "not_found",
    408: "timeout",
    413: "too_large",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}
_MESSAGE_CHARACTERS = 2000


def status_kind(status: int) -> FailureKind:
    """The kind, as far as the status tells."""
    return _KINDS.get(status) or ("server" if status >= 500 else "bad_request")


def says(words: str, phrases: tuple[str, ...]) -> bool:
    """Whether one of `phrases` is in `words`; both in lower case."""
    return any(phrase in words for phrase in phrases)


def short(message: str) -> str:
    """A message without what would only fill a log."""
    return message[:_MESSAGE_CHARACTERS]


def lower_names(headers: Headers) -> dict[str, str]:
    """The same headers by their names in lower case."""
    return {name.lower(): value for name, value in headers.items()}


def retry_after_s(headers: dict[str, str]) -> float | None:
    """Seconds in retry-after-ms, or else Retry-After; None if there is none. A date is compared
    with the reply's own Date, so that no clock is needed."""
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * scale
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    try:
        until = parsedate_to_datetime(headers["retry-after"])
        return max(0.0, (until - parsedate_to_datetime(headers["date"])).total_seconds())
    except (KeyError, ValueError, TypeError, OverflowError):
        return None
