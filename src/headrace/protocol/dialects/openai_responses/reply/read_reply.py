"""A provider's response object: its items as parts of the neutral form, and why it ended."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.openai_responses.reply.failures import read_error
from headrace.protocol.dialects.openai_responses.reply.logprobs import read_logprobs
from headrace.protocol.dialects.openai_responses.reply.usage import usage_extra, usage_of
from headrace.protocol.dialects.openai_responses.text_parts import message_parts
from headrace.protocol.dialects.openai_responses.thoughts import reasoning_parts
from headrace.protocol.dialects.openai_responses.values import (
    DIALECT,
    decoded_reply,
    mapping,
    objects,
    rest,
    text,
    whole,
)
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.part import Opaque, Part, Signature, ToolCall
from headrace.protocol.neutral.reply import ChatReply, Choice, Finish

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


_CALL = frozenset({"type", "id", "call_id", "name", "arguments", "status"})


def item_parts(item: dict[str, Any], origin: str) -> list[Part]:
    """A whole item. origin: whose encrypted_content it holds."""
    kind = item.get("type")
    if kind == "message":
        return message_parts(item)
    if kind == "function_call" and text(item.get("name")):
        return [tool_call(item)]
    if kind == "reasoning":
        thoughts = reasoning_parts(item, encrypted(item, origin))
        # An empty one says nothing to others, but its own provider misses it.
        return [*thoughts] if thoughts else [Opaque(DIALECT, item)]
    return [Opaque(DIALECT, item)]


def encrypted(item: dict[str, Any], origin: str) -> Signature | None:
    """The signature of a reasoning item."""
    value = text(item.get("encrypted_content"))
    return Signature(origin, value) if value else None


def tool_call(item: dict[str, Any]) -> ToolCall:
    """A function call. The item's own id is no call's: results name the call_id."""
    return ToolCall(
        id=text(item.get("call_id")) or text(item.get("id")),
        name=text(item.get("name")),
        arguments=text(item.get("arguments")),
        extra=call_extra(item),
    )


def call_extra(item: dict[str, Any]) -> dict[str, Any]:
    """Fields of a function call's item beyond the call."""
    extra = rest(item, _CALL)
    if id := text(item.get("id")):
        extra["item_id"] = id
    return extra


_NEUTRAL = frozenset(
    {
        "id",
        "model",
        "created_at",
        "status",
        "error",
        "incomplete_details",
        "output",
        "output_text",
        "usage",
        "service_tier",
        "completed_at",
        "moderation",
        "tool_usage",
        "content_filters",
    }
)
_GAVE_UP = ("failed", "cancelled")
_GOES_WELL = ("completed", "incomplete", "in_progress", "queued")


def read_reply(body: bytes, origin: str) -> ChatReply:
    """Raises DamagedReplyError for an invalid response, and for one that failed."""
    response = decoded_reply(body)
    failure = response_failure(response)
    tier = text(response.get("service_tier")) or None
    if failure is not None:
        message = f"the response failed: {failure.message}"
        raise DamagedReplyError(message, failure, usage_of(response), tier)
    if not isinstance(response.get("output"), list):
        message = "the reply has no `output` list; it is not a response object"
        raise DamagedReplyError(message, None, usage_of(response), tier)
    parts: list[Part] = []
    logprobs: list[dict[str, Any]] = []
    for item in objects(response["output"]):
        parts += item_parts(item, origin)
        if item.get("type") == "message":
            for content in objects(item.get("content")):
                logprobs += read_logprobs(content.get("logprobs"))
    calls = any(isinstance(part, ToolCall) for part in parts)
    extra = finish_extra(response)
    if more := usage_extra(response.get("usage")):
        extra["usage"] = more
    choice = Choice(
        parts=tuple(parts),
        finish=read_finish(response, has_tool_calls=calls),
        logprobs=logprobs or None,
        extra=extra,
    )
    return ChatReply(
        dialect=DIALECT,
        id=text(response.get("id")),
        model=text(response.get("model")),
        choices=(choice,),
        usage=usage_of(response),
        created_s=whole(response.get("created_at")),
        service_tier=tier,
        extra=response_extra(response),
    )


def response_extra(response: dict[str, Any]) -> dict[str, Any]:
    """Fields at the beginning of a response without a neutral form."""
    return {"object": "response", **rest(response, _NEUTRAL)}


def response_failure(response: dict[str, Any]) -> Failure | None:
    """Why a response failed; None if it did not."""
    error, status = response.get("error"), response.get("status")
    if status in _GOES_WELL or (not error and status not in _GAVE_UP):
        return None
    failure = read_error({"error": error} if error else {}, None)
    if failure.message:
        return failure
    word = text(status) or "failed"
    return Failure(kind=failure.kind, message=f"the response is {word}", code=failure.code)


def response_of(event: dict[str, Any]) -> dict[str, Any]:
    """The response object in an event, {} without one."""
    return mapping(event.get("response"))
