"""Chat completions with functions in place of tools: read and answered by the dialect's own reader
and writer, as the gateway's are."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from headrace.conversation.reading import AnswerReading
from headrace.protocol.body_json import decode_object
from headrace.protocol.dialects.openai_chat import CLIENT
from headrace.server.call import Call
from headrace.server.dialects.neutral_reply import NeutralReply
from headrace.server.dialects.read_body import ReadBody, read_body
from headrace.server.replies.reply import Head
from headrace.server.routes.dialect_chat import answer_read
from headrace.server.state import Serving


async def answer_legacy(call: Call, serving: Serving, body: bytes) -> Response:
    """The answer to a body that `is_legacy`, whole or as events."""
    path, headers = call.http.scope["path"], dict(call.http.headers)
    name = serving.model.name

    def work() -> ReadBody:
        # Without a name it is the model that is served, as everywhere in chat completions.
        fields = decode_object(body)
        named = body if fields.get("model") else msgspec.json.encode({**fields, "model": name})
        return read_body(named, CLIENT, path, headers)

    read = await call.state.large_bodies.result(call.key, len(body), work)
    call.note_ignored(read.ignored)
    serving.model.check_name(read.call.model)

    def reply(
        read: ReadBody, head: Head, prompt_ids: list[int], reading: AnswerReading | None
    ) -> NeutralReply:
        tokenizer, new_id = serving.model.tokenizer, call.state.new_id
        return NeutralReply(
            CLIENT, read.call, head, prompt_ids, reading, tokenizer=tokenizer, new_id=new_id
        )

    return await answer_read(call, serving, CLIENT, read, reply, prefix="chatcmpl-")
