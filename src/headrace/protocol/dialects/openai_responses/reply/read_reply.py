"""A provider's response object."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.openai_responses.reply.failures import read_error
from headrace.protocol.dialects.openai_responses.reply.finish import finish_extra, read_finish
from headrace.protocol.dialects.openai_responses.reply.logprobs import read_logprobs
from headrace.protocol.dialects.openai_responses.reply.read_items import item_parts
from headrace.protocol.dialects.openai_responses.reply.usage import usage_extra, usage_of
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
from headrace.protocol.neutral.part import Part, ToolCall
from headrace.protocol.neutral.reply import ChatReply, Choice

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
        told = f"the response failed: {failure.message}"
        raise DamagedReplyError(told, failure, usage_of(response), tier)
    if not isinstance(response.get("output"), list):
        told = "the reply has no `output` list; it is not a response object"
        raise DamagedReplyError(told, None, usage_of(response), tier)
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
