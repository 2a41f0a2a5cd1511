"""POST /v1/completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import Response

from headrace.engine.limits import check_logprobs, check_prompt
from headrace.engine.messages import Submit
from headrace.protocol.openai.completions import (
    DEFAULT_MAX_TOKENS,
    Completion,
    CompletionRequest,
    prompts_of,
)
from headrace.protocol.openai.fields import COMPLETIONS
from headrace.server.call import Call
from headrace.server.completion_reply import CompletionReply
from headrace.server.connection import unless_gone
from headrace.server.event_stream import EventStream
from headrace.server.generation import Piece, generate, merge
from headrace.server.params import output_tokens, sampling_params
from headrace.server.prompt import tokenize
from headrace.server.reply import Head, json_reply
from headrace.server.served import ServedModel


async def completions(call: Call) -> Response:
    """Continue one or several prompts, whole or as events."""
    request = await call.parse(COMPLETIONS)
    serving = call.state.serving()
    model = serving.model
    model.check_name(request.model)
    check_logprobs(request.logprobs or 0, model.limits)
    prompts = await _token_ids(call, model, request)
    head = Head(
        f"cmpl-{call.state.new_id()}", int(call.state.wall_clock()), model.name, model.fingerprint
    )
    submits = [
        _submit(request, model, ids, index, len(prompts), head.id)
        for index, ids in enumerate(prompts)
    ]
    sources = [
        generate(
            model,
            submit,
            request,
            arrival_s=call.arrival_s,
            metrics=serving.requests,
            pulse=serving.pulse,
        )
        for submit in submits
    ]
    reply = CompletionReply(head, request, prompts, model.tokenizer)
    merged = merge(sources)
    if request.stream:
        return EventStream(
            _events(merged, reply),
            request_id=call.request_id,
            clock=call.state.clock,
            headers=call.headers,
            keep_alive_s=call.state.keep_alive_s,
        )
    return json_reply(await unless_gone(call.http.receive, _whole(merged, reply)))


async def _token_ids(call: Call, model: ServedModel, request: CompletionRequest) -> list[list[int]]:
    prompts = prompts_of(request)

    def ids_of(index: int, prompt: str | list[int]) -> list[int]:
        if not isinstance(prompt, str):
            return prompt
        return tokenize(
            model,
            prompt,
            add_special_tokens=request.add_special_tokens,
            must_fit=_param(index, len(prompts)),
        )

    return await call.text_work(
        lambda: [ids_of(index, prompt) for index, prompt in enumerate(prompts)]
    )


def _param(index: int, count: int) -> str:
    """What error messages call a prompt."""
    return "prompt" if count == 1 else f"prompt[{index}]"


def _submit(
    request: CompletionRequest,
    model: ServedModel,
    prompt_ids: list[int],
    index: int,
    count: int,
    reply_id: str,
) -> Submit:
    """The engine's request for one prompt, within the model's limits; raises RequestError."""
    param = _param(index, count)
    limits = model.limits
    check_prompt(prompt_ids, limits, param)
    max_tokens = output_tokens(
        len(prompt_ids),
        request.max_tokens,
        limits,
        prompt_param=param,
        tokens_param="max_tokens",
        default=DEFAULT_MAX_TOKENS,
    )
    params = sampling_params(request, max_tokens, request.logprobs, limits)
    return Submit(f"{reply_id}-{index}", prompt_ids, params, request.cache_salt or "")


async def _events(
    merged: AsyncGenerator[tuple[int, Piece], None], reply: CompletionReply
) -> AsyncGenerator[bytes, None]:
    async with aclosing(merged):
        async for index, piece in merged:
            for event in reply.events(index, piece):
                yield event
    for event in reply.last_events():
        yield event


async def _whole(
    merged: AsyncGenerator[tuple[int, Piece], None], reply: CompletionReply
) -> Completion:
    async with aclosing(merged):
        async for index, piece in merged:
            reply.add(index, piece)
    return reply.whole()
