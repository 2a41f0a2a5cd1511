"""Conversations in another vendor's dialect: read, answered as chat completions are, written, and
counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from starlette.responses import Response

from headrace.conversation.reading import AnswerReading
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import ClientSide
from headrace.server.answer import admitted
from headrace.server.call import Call
from headrace.server.dialects.client_names import client_names
from headrace.server.dialects.neutral_reply import NeutralReply
from headrace.server.dialects.read_body import ReadBody, read_body
from headrace.server.model.served import ServedModel
from headrace.server.prompts.chat_prompt import MakePrompt, conversation_of, endpoint_options
from headrace.server.prompts.prompt import render
from headrace.server.replies.reply import Head
from headrace.server.routes.chat import answer_chat
from headrace.server.state import Serving

MakeNeutralReply = Callable[[ReadBody, Head, list[int], AnswerReading | None], NeutralReply]


async def read_call(
    call: Call,
    side: ClientSide,
    *,
    adapt: Callable[[ChatCall], ChatCall] = lambda call: call,
    continues: bool = True,
    taken: frozenset[str] = frozenset(),
) -> ReadBody:
    """The body of a call; raises RequestError naming the client's field at fault.

    adapt, continues, taken: as of `read_body`.
    """
    http = call.http
    path, headers = http.scope["path"], dict(http.headers)
    read = await call.read(
        lambda body: read_body(
            body, side, path, headers, adapt=adapt, continues=continues, taken=taken
        )
    )
    call.note_ignored(read.ignored)
    return read


async def answer_read(
    call: Call,
    serving: Serving,
    side: ClientSide,
    read: ReadBody,
    make_reply: MakeNeutralReply,
    *,
    prefix: str,
    make_prompt: MakePrompt | None = None,
) -> Response:
    """Answer a call that was read. prefix, make_prompt: as of `answer_chat`.

    Tokens beyond the context are not refused: clients of these dialects say a number for models of
    all sizes, and the reply says that it was cut.
    """
    request = read.request
    wanted = endpoint_options(request)
    wanted = replace(wanted, max_tokens=None, default_tokens=wanted.max_tokens)
    with client_names(side.field_paths, read.has):
        return await admitted(
            call,
            request.n,
            lambda ticket: answer_chat(
                call,
                serving,
                ticket,
                request,
                partial(make_reply, read),
                prefix=prefix,
                wanted=wanted,
                make_prompt=make_prompt,
            ),
        )


async def count_read(call: Call, model: ServedModel, side: ClientSide, read: ReadBody) -> int:
    """The tokens of the prompt that a call that was read would become, however many they are.

    Raises RequestError for the name of another model.
    """
    request = read.request
    model.check_name(read.call.model)
    with client_names(side.field_paths, read.has):
        rendering = await call.side_work(
            lambda: render(
                model,
                conversation_of(model, request, request.choice_of_tools),
                add_special_tokens=request.add_special_tokens,
                must_fit=False,
            )
        )
    return len(rendering.token_ids)
