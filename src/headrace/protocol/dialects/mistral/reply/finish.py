"""Mistral's finish reasons. "error" means that there is no answer."""

from __future__ import annotations

from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.reply import Finish

_FINISHES: dict[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
}


def read_finish(reason: str) -> Finish | Failure:
    """The finish reason; an unknown one is "stop"."""
    if reason == "error":
        return Failure(kind="server", message="Mistral gave up on the answer", code=reason)
    return _FINISHES.get(reason, "stop")
