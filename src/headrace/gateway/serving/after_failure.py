"""What a failure means: for the client, for the target, and for what is tried next.

The kinds are those of `headrace.protocol.neutral.failure`. The classes follow Bifrost's table of
key-level failures; Anthropic's 529 counts as 503.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from headrace.protocol.neutral.failure import Failure, FailureKind

Next = Literal[
    "stop", "other_key", "other_account", "other_target", "context_fallback", "policy_fallback"
]


class Class(NamedTuple):
    """The reaction that a kind of failure calls for."""

    next: Next
    """What may help."""
    blames: bool
    """Whether it counts against the target."""
    again: bool
    """Whether the same target may succeed a moment later."""
    status: int
    """HTTP status of the reply if nothing helps."""


CLASSES: dict[FailureKind, Class] = {
    "bad_request": Class("stop", False, False, 400),
    "too_large": Class("stop", False, False, 413),
    # Other requests may still succeed: try another key or target, and let none of them rest.
    "account_limit": Class("other_account", False, False, 400),
    "context_length": Class("context_fallback", False, False, 400),
    "content_policy": Class("policy_fallback", False, False, 400),
    "authentication": Class("other_key", False, False, 502),
    "permission": Class("other_key", False, False, 502),
    "payment": Class("other_key", False, False, 502),
    "rate_limit": Class("other_key", False, True, 429),
    # A model or path is missing there: the target may still serve other requests.
    "not_found": Class("other_target", False, False, 404),
    "overloaded": Class("other_target", True, True, 503),
    "timeout": Class("other_target", True, True, 504),
    "server": Class("other_target", True, True, 502),
    "network": Class("other_target", True, True, 502),
    "damaged": Class("other_target", True, True, 502),
    # Clients can cause this: it does not count against the target, and a retry is billed again.
    "reply_too_large": Class("other_target", False, False, 502),
}

# Another request would be answered; neither the gateway nor a provider needs attention.
CLIENTS: frozenset[Next] = frozenset(("stop", "context_fallback", "policy_fallback"))


def class_of(failure: Failure) -> Class:
    """The class of a failure's kind."""
    return CLASSES[failure.kind]


class Tried(NamedTuple):
    """An attempt that failed."""

    target: str
    failure: Failure
    after_s: float
    was_sent: bool = False
    """Whether the provider may have received the request."""
    model: str = ""
    """Name the target was requested by; "" where it is not recorded."""


def summary(tried: tuple[Tried, ...], most_chars: int = 600) -> str:
    """All attempts in one line, each with the provider's message, shortened where it is long."""
    share = max(60, most_chars // max(1, len(tried)))
    parts = []
    for attempt in tried:
        message = " ".join(attempt.failure.message.split())
        message = message if len(message) <= share else message[: share - 1] + "…"
        status = f" {attempt.failure.status}" if attempt.failure.status else ""
        what = f"{attempt.failure.kind}{status} after {attempt.after_s:.2f} s"
        parts.append(f"{attempt.target}: {what} ({message})")
    return "; ".join(parts)
