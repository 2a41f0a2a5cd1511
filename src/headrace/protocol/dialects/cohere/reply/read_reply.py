"""The reader of Cohere's replies."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.cohere.names import DIALECT
from headrace.protocol.dialects.cohere.reply.citations import read_citations
from headrace.protocol.dialects.cohere.reply.finish import read_finish, read_logprob
from headrace.protocol.dialects.cohere.reply.usage import read_usage
from headrace.protocol.dialects.json_values import (
    json_text,
    mapping,
    objects,
    read_object,
    text,
)
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.part import Part, Text, Thinking, ToolCall
from headrace.protocol.neutral.reply import ChatReply, Choice


def read_reply(body: bytes) -> ChatReply:
    """The model's plan for its tools is a Text before its calls. model: "", for Cohere tells none.

    Citations are in the choice's `extra`, as Cohere wrote them: they count characters of the whole
    message. Raises DamagedReplyError, with a failure in it for finish reasons ERROR and TIMEOUT.
    """
    reply = read_object(body)
    message = reply.get("message")
    if not isinstance(message, dict):
        raise DamagedReplyError("the reply has no message")
    finish = read_finish(text(reply.get("finish_reason")), text(reply.get("error")))
    if isinstance(finish, Failure):
        raise DamagedReplyError(finish.message, failure=finish)
    citations = objects(message.get("citations"))
    logprobs = [read_logprob(item) for item in objects(reply.get("logprobs"))]
    choice = Choice(
        parts=(
            *_content(message, read_citations(citations)),
            *_plan(message),
            *_tool_calls(message),
        ),
        finish=finish,
        logprobs=[logprob for logprob in logprobs if logprob is not None] or None,
        extra={"citations": citations} if citations else {},
    )
    return ChatReply(
        dialect=DIALECT,
        id=text(reply.get("id")),
        model="",
        choices=(choice,),
        usage=read_usage(reply.get("usage")),
    )


def _content(message: dict[str, Any], citations: tuple[Citation, ...]) -> list[Part]:
    """Thoughts and text; the first text has the citations."""
    content = message.get("content")
    if isinstance(content, str):
        return [Text(text=content, citations=citations)] if content else []
    parts: list[Part] = []
    for block in objects(content):
        thought, words = text(block.get("thinking")), text(block.get("text"))
        if thought:
            parts.append(Thinking(text=thought))
        if words:
            parts.append(Text(text=words, citations=citations))
            citations = ()
    return parts


def _plan(message: dict[str, Any]) -> list[Part]:
    plan = text(message.get("tool_plan"))
    return [Text(text=plan)] if plan else []


def _tool_calls(message: dict[str, Any]) -> list[Part]:
    calls: list[Part] = []
    for call in objects(message.get("tool_calls")):
        function = mapping(call.get("function"))
        name = text(function.get("name"))
        if not name:
            raise DamagedReplyError("a tool call has no name")
        arguments = json_text(function.get("arguments"))
        calls.append(ToolCall(id=text(call.get("id")), name=name, arguments=arguments))
    return calls
