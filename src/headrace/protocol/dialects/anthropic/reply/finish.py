"""Why an answer ended, in both directions."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.anthropic.values import NAME, mapping, text
from headrace.protocol.neutral.reply import Finish

_READ: dict[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
    "pause_turn": "pause",
    "compaction": "pause",
}
_WRITTEN: dict[Finish, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
    "pause": "pause_turn",
}
_REASON = "stop_reason"


def read_finish(reason: object) -> Finish | None:
    """The finish reason; None if there is none yet; an unknown reason is a stop."""
    word = text(reason)
    return _READ.get(word, "stop") if word else None


def answer_extra(reason: object, stop_sequence: object, fields: dict[str, Any]) -> dict[str, Any]:
    """`extra` of a Choice: what has no neutral form, below this dialect's name.

    fields: of the message. The reason's own word is kept where it could not be told from another.
    """
    finish, word = read_finish(reason), text(reason)
    kept = {key: value for key, value in fields.items() if value not in (None, {})}
    if finish is not None and word != write_finish(finish, text(stop_sequence) or None, {}):
        kept[_REASON] = word
    return {NAME: kept} if kept else {}


def write_finish(
    finish: Finish | None,
    stop_sequence: str | None,
    extra: dict[str, Any],
    *,
    with_tools: bool = False,
) -> str | None:
    """The stop_reason. with_tools: tools were called, which agents look for in the reason.

    Some providers say "stop" all the same.
    """
    if (word := text(mapping(extra.get(NAME)).get(_REASON))) and _READ.get(word, "stop") == finish:
        return word
    if finish is None:
        return None
    if finish == "stop" and stop_sequence is not None:
        return "stop_sequence"
    if finish == "stop" and with_tools:
        return "tool_use"
    return _WRITTEN[finish]


def kept_fields(extra: dict[str, Any]) -> dict[str, Any]:
    """The message's fields that `answer_extra` kept."""
    return {key: value for key, value in mapping(extra.get(NAME)).items() if key != _REASON}
