"""POST /v1/chat/completions."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from headrace.protocol.openai.chat import ChatCompletionRequest
from headrace.protocol.openai.fields import CHAT
from headrace.server.admission import Ticket
from headrace.server.answer import Ids, admitted, answer, head_of, timeout_s
from headrace.server.bad_words import bad_word_ids
from headrace.server.call import Call
from headrace.server.chat_reply import ChatReply
from headrace.server.plan import EndpointOptions, make_plan
from headrace.server.prompt import Prompt, last_tokens, render
from headrace.server.reply import UsageEvents
from headrace.server.served import ServedModel
from headrace.server.state import Serving

_PARAM = "messages"


async def chat_completions(call: Call) -> Response:
    """Answer a conversation, whole or as events."""
    serving = call.state.generating(call.key)
    request = await call.parse(CHAT)
    serving.model.check_name(request.model)
    return await admitted(call, request.n, lambda ticket: _answered(call, serving, ticket, request))


async def _answered(
    call: Call, serving: Serving, ticket: Ticket, request: ChatCompletionRequest
) -> Response:
    model, wanted = serving.model, _wanted(request)
    prompt, bad_words = await call.text_work(
        lambda: (_prompt(model, request, wanted), bad_word_ids(request.bad_words, model.tokenizer))
    )
    ids = Ids("chatcmpl", request.request_id, call.state.new_id())
    plan = make_plan(
        model,
        request,
        [prompt],
        wanted,
        bad_words=bad_words,
        engine_id=ids.engine,
        timeout_s=timeout_s(call, request),
    )
    reply = ChatReply(
        head_of(call, serving, ids),
        request,
        prompt.token_ids,
        model.tokenizer,
        UsageEvents.of(request, forced=call.state.config.enable_force_include_usage),
    )
    return await answer(call, serving, ticket, request, plan, reply)


def _wanted(request: ChatCompletionRequest) -> EndpointOptions:
    return EndpointOptions(
        max_tokens=request.wanted_tokens,
        tokens_param=request.tokens_param,
        logprobs=request.top_logprobs if request.logprobs else None,
        logprobs_param="top_logprobs",
        candidates=request.n,
        prompt_logprobs=request.prompt_logprobs,
    )


def _prompt(model: ServedModel, request: ChatCompletionRequest, wanted: EndpointOptions) -> Prompt:
    keep = request.truncate_prompt_tokens
    ids = render(
        model,
        request.messages,
        opens_turn=request.opens_turn,
        continues=request.continue_final_message,
        add_special_tokens=request.add_special_tokens,
        variables=_variables(request),
        template=request.chat_template,
        must_fit=keep is None,
    )
    context = model.limits.context_tokens
    return Prompt(last_tokens(ids, keep, room=wanted.room, context_tokens=context), _PARAM)


def _variables(request: ChatCompletionRequest) -> dict[str, Any]:
    """Variables for the template; what the caller names itself goes before reasoning_effort.

    Templates of Qwen3 and others have a switch instead of an effort, so `none` turns that off, as
    it does in vLLM.
    """
    variables = dict(request.chat_template_kwargs)
    if request.reasoning_effort is not None:
        variables.setdefault("reasoning_effort", request.reasoning_effort)
    if request.reasoning_effort == "none":
        variables.setdefault("enable_thinking", False)
    return variables
