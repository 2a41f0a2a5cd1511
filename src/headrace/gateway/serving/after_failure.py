"""What a failure means: for the client, for the target, and for what is tried next.

Kinds as in `headrace.protocol.neutral.failure`. The classes follow Bifrost's table of key-level
failures and Anthropic's 529 as 503.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from headrace.protocol.neutral.failure import Failure, FailureKind

Next = Literal[
    "stop", "other_key", "other_account", "other_target", "context_fallback", "policy_fallback"
]


class Class(NamedTuple):
    """next: what may help. blames: whether it counts against the target. again: whether the same
    target may do better in a moment. status: of our reply if nothing helps."""

    next: Next
    blames: bool
    again: bool
    status: int


CLASSES: dict[FailureKind, Class] = {
    "bad_request": Class("stop", False, False, 400),
    "too_large": Class("stop", False, False, 413),
    # Says nothing of what others ask: another key or target is asked, and none of them rests.
    "account_limit": Class("other_account", False, False, 400),
    "context_length": Class("context_fallback", False, False, 400),
    "content_policy": Class("policy_fallback", False, False, 400),
    "authentication": Class("other_key", False, False, 502),
    "permission": Class("other_key", False, False, 502),
    "payment": Class("other_key", False, False, 502),
    "rate_limit": Class("other_key", False, True, 429),
    # Of a model or a path there: the target may do well what others ask for.
    "not_found": Class("other_target", False, False, 404),
    "overloaded": Class("other_target", True, True, 503),
    "timeout": Class("other_target", True, True, 504),
    "server": Class("other_target", True, True, 502),
    "network": Class("other_target", True, True, 502),
    "damaged": Class("other_target", True, True, 502),
    # A client can ask for so much: it is no fault of the target, and would be paid for again.
    "reply_too_large": Class("other_target", False, False, 502),
}


def class_of(failure: Failure) -> Class:
    """What to do about it."""
    return CLASSES[failure.kind]


class Tried(NamedTuple):
    """One attempt that failed. was_sent: whether the provider may have seen it. model: that
    the target was asked as, "" where that is not kept."""

    target: str
    failure: Failure
    after_s: float
    was_sent: bool = False
    model: str = ""


def summary(tried: tuple[Tried, ...], most_chars: int = 600) -> str:
    """All attempts in one line, each with the provider's own words, cut where they are long."""
    share = max(60, most_chars // max(1, len(tried)))
    parts = []
    for one in tried:
        said = " ".join(one.failure.message.split())
        said = said if len(said) <= share else said[: share - 1] + "…"
        status = f" {one.failure.status}" if one.failure.status else ""
        parts.append(f"{one.target}: {one.failure.kind}{status} after {one.after_s:.2f} s ({said})")
    return "; ".join(parts)
