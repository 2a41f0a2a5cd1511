"""Finish reasons: OpenAI's five, and those of other servers."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.protocol.neutral.failure import FailureKind
from headrace.protocol.neutral.reply import Finish

_WORDS: dict[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    # Others than OpenAI's.
    "max_tokens": "length",
    "model_length": "length",
    "max_output_tokens": "length",
    "tool_call": "tool_calls",
    "tool_use": "tool_calls",
    "safety": "content_filter",
    "sensitive": "content_filter",
    "recitation": "content_filter",
    "refusal": "content_filter",
}

# The server gave up: what came is not the answer.
_FAILURES: dict[str, FailureKind] = {
    "error": "server",
    "abort": "server",
    "network_error": "network",
    "insufficient_system_resource": "overloaded",
}


class ReadFinish(NamedTuple):
    """A finish reason as read."""

    reason: Finish | None
    """None if the server reports none."""
    failed: FailureKind | None
    """Whether it ended by a fault."""
    extra: dict[str, Any]
    """What to report in addition: `finish_reason` if the word does not follow from the reason,
    `native_finish_reason` if it is not one of OpenAI's."""


def read_finish(word: Any, *, has_tool_calls: bool) -> ReadFinish:
    """A choice that calls tools has ended for them, whatever the server calls it."""
    if not isinstance(word, str) or not word:
        return ReadFinish(None, None, {})
    lower = word.lower()
    if lower in _FAILURES:
        return ReadFinish(None, _FAILURES[lower], {})
    reason = _WORDS.get(lower, "stop")
    if reason == "stop" and has_tool_calls:
        return ReadFinish("tool_calls", None, {"finish_reason": "stop"})
    own = lower in ("stop", "length", "tool_calls", "function_call", "content_filter")
    return ReadFinish(reason, None, {} if own else {"native_finish_reason": word})


def finish_if_silent(has_tool_calls: bool) -> Finish:
    """The finish of an answer that is complete but has no reason (Snowflake)."""
    return "tool_calls" if has_tool_calls else "stop"


def write_finish(reason: Finish | None, extra: dict[str, Any], *, legacy: bool) -> str | None:
    """OpenAI's word. legacy: the client knows functions, not tools."""
    if reason == "tool_calls":
        if extra.get("finish_reason") == "stop":
            return "stop"
        return "function_call" if legacy else "tool_calls"
    return "stop" if reason == "pause" else reason
