"""Refusals that concern a single request, and mean nothing for other requests with the key.

OpenAI and Groq answer 429 or 413 to a request of more tokens than a minute's limit has, OpenRouter
402 to one that asks for more tokens than there is money for, and OpenAI 403 to a parameter that a
model does not take.
"""

from __future__ import annotations

_TOO_LARGE = ("request too large for", "tokens must be reduced in order to run")
_TOO_DEAR = ("fewer max_tokens", "can only afford", "prompt tokens limit exceeded")
# A 403 with one of these is of the key (what it may use, whose it is) or of a policy.
_OF_OTHERS = (
    "policy",
    "moderation",
    "flagged",
    "permission",
    "access",
    "scope",
    "organization",
    "project",
    "account",
    "key",
    "sample from",
    "verif",
    "region",
    "country",
)


def is_of_request_alone(
    status: int | None, message: str, code: str | None, type_: str | None
) -> bool:
    """Whether a smaller or a plainer request would be answered by the same key."""
    words = message.lower()
    if status in (413, 429):
        return any(phrase in words for phrase in _TOO_LARGE)
    if status == 402:
        return any(phrase in words for phrase in _TOO_DEAR)
    if status != 403 or code is not None or type_ != "invalid_request_error":
        return False
    return bool(words) and not any(phrase in words for phrase in _OF_OTHERS)
