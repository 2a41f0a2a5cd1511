"""A whole answer as the response object."""

from __future__ import annotations

import msgspec

from headrace.protocol.dialects.openai_responses.reply.output import Output
from headrace.protocol.dialects.openai_responses.reply.response import Response
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.collect import replayed
from headrace.protocol.neutral.event import CompletePart, PartDelta, PartEnd, PartStart, ReplyStart
from headrace.protocol.neutral.reply import ChatReply, Choice

_OF_PARTS = PartStart | PartDelta | PartEnd | CompletePart


def write_reply(reply: ChatReply, call: ChatCall) -> bytes:
    """The body of a 200. The API has one choice: of several the first is written."""
    began = ReplyStart(id=reply.id, model=reply.model, created_s=reply.created_s, extra=reply.extra)
    response = Response(call, began)
    output = Output(response.id, own=response.own)
    choice = next((one for one in reply.choices if one.index == 0), Choice())
    for event in replayed(reply):
        if isinstance(event, _OF_PARTS) and event.choice == 0:
            output.take(event)
    output.finish(choice.finish)
    ended = response.ended(
        output.items, choice.finish, reply.usage, reply.service_tier, choice.extra
    )
    return msgspec.json.encode(ended)
