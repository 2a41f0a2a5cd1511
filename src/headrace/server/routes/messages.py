"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from headrace.conversation.reading import AnswerReading
from headrace.protocol.neutral.call import ChatCall
from headrace.server.call import Call
from headrace.server.dialects.neutral_reply import NeutralReply
from headrace.server.dialects.read_body import ReadBody
from headrace.server.replies.reply import Head
from headrace.server.routes.dialect_chat import answer_read, count_read, read_call

if TYPE_CHECKING:
    from headrace.protocol.dialects.anthropic import AnthropicClient


async def messages(call: Call) -> Response:
    """Answer a conversation, whole or as events."""
    side = _side()
    serving = call.state.generating(call.key)
    read = await read_call(call, side, adapt=_without_billing)
    serving.model.check_name(read.call.model)

    def reply(
        read: ReadBody, head: Head, prompt_ids: list[int], reading: AnswerReading | None
    ) -> NeutralReply:
        new_id = call.state.new_id
        return NeutralReply(
            side, read.call, head, prompt_ids, reading, signs_thoughts=True, new_id=new_id
        )

    return await answer_read(call, serving, side, read, reply, prefix="msg_")


async def count_message_tokens(call: Call) -> Response:
    """The tokens of the prompt that a conversation would become."""
    side = _side()
    model = call.state.serving().model
    read = await read_call(call, side, adapt=_without_billing)
    body = side.write_token_count(await count_read(call, model, side, read))
    return Response(body, media_type="application/json")


def _without_billing(call: ChatCall) -> ChatCall:
    from headrace.protocol.dialects.anthropic.request.billing import without_billing

    return without_billing(call)


def _side() -> AnthropicClient:
    from headrace.protocol.dialects.anthropic import CLIENT

    return CLIENT
