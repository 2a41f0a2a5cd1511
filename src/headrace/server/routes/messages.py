"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's API."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from headrace.conversation.reading import AnswerReading
from headrace.protocol.neutral.call import ChatCall, Message
from headrace.protocol.neutral.part import Part, Text
from headrace.server.call import Call
from headrace.server.dialects.client_names import client_names
from headrace.server.dialects.neutral_reply import NeutralReply
from headrace.server.dialects.read_body import ReadBody
from headrace.server.prompts.prompt import render
from headrace.server.replies.reply import Head
from headrace.server.routes.chat import conversation_of
from headrace.server.routes.dialect_chat import answer_asked, read_call

if TYPE_CHECKING:
    from headrace.protocol.dialects.anthropic import AnthropicClient

_BILLING = re.compile(r"\A\s*x-anthropic-billing-header:[^\n]*\n*")
"""A line about the client that Claude Code puts before its system prompt. It has a checksum of the
request in it, so with it no two prompts of a session would begin alike."""


async def messages(call: Call) -> Response:
    """Answer a conversation, whole or as events."""
    side = _side()
    serving = call.state.generating(call.key)
    asked = await read_call(call, side, adapt=without_billing)
    serving.model.check_name(asked.call.model)

    def reply(
        asked: ReadBody, head: Head, prompt_ids: list[int], reading: AnswerReading | None
    ) -> NeutralReply:
        new_id = call.state.new_id
        return NeutralReply(
            side, asked.call, head, prompt_ids, reading, signs_thoughts=True, new_id=new_id
        )

    return await answer_asked(call, serving, side, asked, reply, prefix="msg_")


async def count_message_tokens(call: Call) -> Response:
    """The tokens of the prompt that a conversation would become."""
    side = _side()
    model = call.state.serving().model
    asked = await read_call(call, side, adapt=without_billing)
    model.check_name(asked.call.model)
    request = asked.request
    with client_names(side.field_paths, asked.has):
        rendering = await call.side_work(
            lambda: render(
                model,
                conversation_of(model, request),
                add_special_tokens=request.add_special_tokens,
                must_fit=False,
            )
        )
    body = side.write_token_count(len(rendering.token_ids))
    return Response(body, media_type="application/json")


def without_billing(call: ChatCall) -> ChatCall:
    """The call without the client's line about itself, wherever system text begins with it."""
    instructions = tuple(kept for text in call.instructions if (kept := _clean(text)) is not None)
    messages = tuple(map(_clean_message, call.messages))
    return msgspec.structs.replace(call, instructions=instructions, messages=messages)


def _clean_message(message: Message) -> Message:
    if message.extra.get("role") != "system":
        return message
    cleaned: list[Part] = []
    for part in message.parts:
        kept = _clean(part) if isinstance(part, Text) else part
        if kept is not None:
            cleaned.append(kept)
    return msgspec.structs.replace(message, parts=tuple(cleaned))


def _clean(text: Text) -> Text | None:
    """The text without the line; None where that was all of it."""
    found = _BILLING.match(text.text)
    if found is None:
        return text
    rest = text.text[found.end() :]
    return msgspec.structs.replace(text, text=rest) if rest else None


def _side() -> AnthropicClient:
    from headrace.protocol.dialects.anthropic import CLIENT

    return CLIENT
