"""Cohere's finish reasons, two of which mean that there is no answer, and log probabilities."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.json_values import number, text
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


def read_logprob(item: dict[str, Any]) -> dict[str, Any] | None:
    """One piece. It may consist of several tokens: its log probability is then their sum.

    None if there is no text or no number in it. Cohere reports no alternatives.
    """
    piece = text(item.get("text")) or text(item.get("token"))
    values = item.get("logprobs")
    told = values if isinstance(values, list) else [item.get("logprob")]
    numbers = [number(value) for value in told]
    known = [value for value in numbers if value is not None]
    if not piece or not known or len(known) != len(numbers):
        return None
    return {
        "token": piece,
        "logprob": sum(known),
        "bytes": list(piece.encode()),
        "top_logprobs": [],
    }
