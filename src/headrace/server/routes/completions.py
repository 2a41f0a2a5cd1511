"""POST /v1/completions."""

from __future__ import annotations

from starlette.responses import Response

from headrace.conversation.thinking import start_after
from headrace.protocol.openai.completions import (
    DEFAULT_MAX_TOKENS,
    CompletionRequest,
    prompts_of,
)
from headrace.protocol.openai.fields import COMPLETIONS
from headrace.server.admission.admission import Ticket
from headrace.server.answer import Ids, admitted, answer, head_of, timeout_s
from headrace.server.call import Call
from headrace.server.model.served import ServedModel
from headrace.server.prompts.bad_words import bad_word_ids
from headrace.server.prompts.params import thinking_budget
from headrace.server.prompts.plan import EndpointOptions, make_plan
from headrace.server.prompts.prompt import Prompt, last_tokens, tokenize
from headrace.server.replies.completion_reply import CompletionReply
from headrace.server.replies.echo import Echo, echo_of
from headrace.server.replies.reply import UsageEvents
from headrace.server.state import Serving
from headrace.structured.request import constraint_of


async def completions(call: Call) -> Response:
    """Continue one or several prompts, whole or as events."""
    serving = call.state.generating(call.key)
    request = await call.parse(COMPLETIONS)
    serving.model.check_name(request.model)
    texts = prompts_of(request)
    return await admitted(
        call,
        len(texts) * request.candidates,
        lambda ticket: _answered(call, serving, ticket, request, texts),
    )


async def _answered(
    call: Call,
    serving: Serving,
    ticket: Ticket,
    request: CompletionRequest,
    texts: list[str | list[int]],
) -> Response:
    model, wanted = serving.model, _wanted(request)

    def work() -> tuple[list[Prompt], tuple[tuple[int, ...], ...]]:
        params = ["prompt"] if len(texts) == 1 else [f"prompt[{i}]" for i in range(len(texts))]
        prompts = [
            _prompt(model, request, wanted, text, param)
            for text, param in zip(texts, params, strict=True)
        ]
        return prompts, bad_word_ids(request.bad_words, model.tokenizer)

    prompts, bad_words = await call.text_work(work)
    form = request.given_form
    grammar = None
    if form:
        grammar = await call.grammar_work(lambda: constraint_of(form, model.special_tokens))
    ids = Ids("cmpl-", request.request_id, call.state.new_id())
    plan = make_plan(
        model,
        request,
        prompts,
        wanted,
        bad_words=bad_words,
        grammar=grammar,
        engine_id=ids.engine,
        timeout_s=timeout_s(call, request),
    )
    reply = CompletionReply(
        head_of(call, serving, ids),
        request,
        prompts,
        model.tokenizer,
        UsageEvents.of(request, forced=call.state.config.enable_force_include_usage),
    )
    return await answer(call, serving, ticket, request, plan, reply)


def _wanted(request: CompletionRequest) -> EndpointOptions:
    """With echo the prompt's tokens need log probabilities too, and to rank answers all do."""
    logprobs, of_prompt = request.logprobs, request.prompt_logprobs
    if request.echo and logprobs is not None:
        of_prompt = max(logprobs, of_prompt or 0)
    return EndpointOptions(
        max_tokens=request.max_tokens,
        default_tokens=DEFAULT_MAX_TOKENS,
        tokens_param="max_tokens",
        logprobs=0 if logprobs is None and request.ranks else logprobs,
        logprobs_param="logprobs",
        candidates=request.candidates,
        prompt_logprobs=of_prompt,
    )


def _prompt(
    model: ServedModel,
    request: CompletionRequest,
    wanted: EndpointOptions,
    given: str | list[int],
    param: str,
) -> Prompt:
    keep = request.truncate_prompt_tokens
    ids = given
    if isinstance(ids, str):
        ids = tokenize(
            model,
            ids,
            add_special_tokens=request.add_special_tokens,
            param=param,
            must_fit=keep is None,
        )
    context = model.limits.context_tokens
    kept = last_tokens(ids, keep, room=wanted.room, context_tokens=context)
    echo = Echo("", ())
    if request.echo:
        echo = echo_of(
            kept,
            given if isinstance(given, str) and len(kept) == len(ids) else None,
            model.tokenizer,
            skip_special_tokens=request.skip_special_tokens,
        )
    thinking = None
    if request.thinking_tokens is not None:
        start = start_after(kept, model.marks)
        thinking = thinking_budget(request.thinking_tokens, start)
    return Prompt(kept, param, echo.text, echo.text_offsets, thinking)
