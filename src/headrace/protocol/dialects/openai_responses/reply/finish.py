"""Why a response ended."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.openai_responses.values import mapping, text
from headrace.protocol.neutral.reply import Finish

_CUT: dict[str, Finish] = {"max_output_tokens": "length", "content_filter": "content_filter"}


def read_finish(response: dict[str, Any], *, has_tool_calls: bool) -> Finish | None:
    """The finish reason; None for a response that has not ended (a background one)."""
    status = response.get("status")
    if status in ("queued", "in_progress"):
        return None
    if status == "incomplete":
        reason = text(mapping(response.get("incomplete_details")).get("reason"))
        return _CUT.get(reason, "length" if not reason else "stop")
    return "tool_calls" if has_tool_calls else "stop"


def finish_extra(response: dict[str, Any]) -> dict[str, Any]:
    """Fields at the end of a response without a neutral form."""
    extra: dict[str, Any] = {}
    for name in ("completed_at", "moderation", "tool_usage", "content_filters"):
        if response.get(name) is not None:
            extra[name] = response[name]
    status = response.get("status")
    if status not in (None, "completed", "incomplete", "failed"):
        extra["status"] = status
    reason = text(mapping(response.get("incomplete_details")).get("reason"))
    if reason and reason not in _CUT:
        extra["incomplete_details"] = response["incomplete_details"]
        extra["status"] = "incomplete"
    return extra
