"""Cohere's finish reasons. Two of them mean that there is no answer."""

from __future__ import annotations

from headrace.protocol.dialects.status_failure import short
from headrace.protocol.neutral.failure import Failure, FailureKind
from headrace.protocol.neutral.reply import Finish

# The last two are of v1, which v2's description no longer names.
_FINISHES: dict[str, Finish] = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "MAX_TOKENS": "length",
    "TOOL_CALL": "tool_calls",
    "ERROR_LIMIT": "length",
    "ERROR_TOXIC": "content_filter",
}


def read_finish(reason: str, message: str = "") -> Finish | Failure:
    """The finish reason; an unknown one is "stop", unless its name begins like those of failures.

    message: Cohere's own words beside the reason, if any. No reason at all is damage.
    """
    name = reason.upper()
    if name in _FINISHES:
        return _FINISHES[name]
    kind: FailureKind
    if not name:
        kind, words = "damaged", "Cohere did not say why it stopped"
    elif name.startswith("TIMEOUT"):
        kind, words = "timeout", "Cohere stopped because the answer took too long"
    elif name.startswith("ERROR"):
        kind, words = "server", "Cohere gave up on the answer"
    else:
        return "stop"
    return Failure(kind=kind, message=short(message) or words, code=short(reason) or None)
