"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.responses import Response

from headrace.engine.limits import check_logprobs, check_prompt
from headrace.engine.messages import Submit
from headrace.protocol.openai.chat import ChatCompletion, ChatCompletionRequest
from headrace.protocol.openai.fields import CHAT
from headrace.server.call import Call
from headrace.server.chat_reply import ChatReply
from headrace.server.connection import unless_gone
from headrace.server.event_stream import EventStream
from headrace.server.generation import Piece, generate
from headrace.server.params import output_tokens, sampling_params
from headrace.server.prompt import render
from headrace.server.reply import Head, json_reply
from headrace.server.state import Serving


async def chat_completions(call: Call) -> Response:
    """Answer a conversation, whole or as events."""
    request = await call.parse(CHAT)
    serving = call.state.serving()
    model = serving.model
    model.check_name(request.model)
    prompt_ids = await call.text_work(
        lambda: render(
            model,
            request.messages,
            opens_turn=request.opens_turn,
            continues=request.continue_final_message,
            add_special_tokens=request.add_special_tokens,
            variables=_variables(request),
            template=request.chat_template,
            must_fit="messages",
        )
    )
    head = Head(
        f"chatcmpl-{call.state.new_id()}",
        int(call.state.wall_clock()),
        model.name,
        model.fingerprint,
    )
    submit = _submit(request, serving, prompt_ids, head.id)
    pieces = generate(
        model,
        submit,
        request,
        arrival_s=call.arrival_s,
        metrics=serving.requests,
        pulse=serving.pulse,
    )
    reply = ChatReply(head, request, prompt_ids, model.tokenizer)
    if request.stream:
        return EventStream(
            _events(pieces, reply),
            request_id=call.request_id,
            clock=call.state.clock,
            headers=call.headers,
            keep_alive_s=call.state.keep_alive_s,
        )
    return json_reply(await unless_gone(call.http.receive, _whole(pieces, reply)))


def _variables(request: ChatCompletionRequest) -> dict[str, Any]:
    """Variables for the template; what the caller names itself goes before reasoning_effort."""
    variables = dict(request.chat_template_kwargs)
    if request.reasoning_effort is not None:
        variables.setdefault("reasoning_effort", request.reasoning_effort)
    return variables


def _submit(
    request: ChatCompletionRequest, serving: Serving, prompt_ids: list[int], request_id: str
) -> Submit:
    """The engine's request, within the model's limits; raises RequestError."""
    limits = serving.model.limits
    check_logprobs(request.top_logprobs, limits, "top_logprobs")
    check_prompt(prompt_ids, limits, "messages")
    max_tokens = output_tokens(
        len(prompt_ids),
        request.wanted_tokens,
        limits,
        prompt_param="messages",
        tokens_param="max_tokens"
        if request.max_completion_tokens is None
        else "max_completion_tokens",
    )
    logprobs = request.top_logprobs if request.logprobs else None
    params = sampling_params(request, max_tokens, logprobs, limits)
    return Submit(request_id, prompt_ids, params, request.cache_salt or "")


async def _events(
    pieces: AsyncGenerator[Piece, None], reply: ChatReply
) -> AsyncGenerator[bytes, None]:
    async with aclosing(pieces):
        async for piece in pieces:
            for event in reply.events(piece):
                yield event
    for event in reply.last_events():
        yield event


async def _whole(pieces: AsyncGenerator[Piece, None], reply: ChatReply) -> ChatCompletion:
    async with aclosing(pieces):
        async for piece in pieces:
            reply.add(piece)
    return reply.whole()
