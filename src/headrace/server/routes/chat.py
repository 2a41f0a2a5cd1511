"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from starlette.responses import Response

from headrace.conversation.answer_rules import AnswerRules
from headrace.conversation.reading import AnswerReading, reading_of
from headrace.conversation.request import argument_schemas, template_variables
from headrace.protocol.openai.chat import ChatCompletionRequest
from headrace.protocol.openai.fields import CHAT
from headrace.protocol.openai.tools import ToolChoice
from headrace.server.admission.admission import Ticket
from headrace.server.answer import Ids, Reply, admitted, answer, head_of, timeout_s
from headrace.server.call import Call
from headrace.server.model.served import ServedModel
from headrace.server.prompts.bad_words import bad_word_ids
from headrace.server.prompts.params import thinking_budget
from headrace.server.prompts.plan import EndpointOptions, make_plan
from headrace.server.prompts.prompt import Conversation, Prompt, last_tokens, render
from headrace.server.replies.chat_reply import ChatReply
from headrace.server.replies.reply import Head, UsageEvents
from headrace.server.state import Serving
from headrace.structured.request import constraint_of

_PARAM = "messages"


async def chat_completions(call: Call) -> Response:
    """Answer a conversation, whole or as events."""
    serving = call.state.generating(call.key)
    request = await call.parse(CHAT)
    serving.model.check_name(request.model)
    usage = UsageEvents.of(request, forced=call.state.config.enable_force_include_usage)

    def reply(head: Head, prompt_ids: list[int], reading: AnswerReading | None) -> ChatReply:
        new_id, tokenizer = call.state.new_id, serving.model.tokenizer
        return ChatReply(head, request, prompt_ids, tokenizer, usage, reading, new_id=new_id)

    return await admitted(
        call, request.n, lambda ticket: answer_chat(call, serving, ticket, request, reply)
    )


MakeReply = Callable[[Head, list[int], AnswerReading | None], Reply]
"""From what a reply repeats, the prompt's ids, and how answers are read."""


async def answer_chat(
    call: Call,
    serving: Serving,
    ticket: Ticket,
    request: ChatCompletionRequest,
    make_reply: MakeReply,
    *,
    prefix: str = "chatcmpl-",
    wanted: EndpointOptions | None = None,
    make_prompt: MakePrompt | None = None,
) -> Response:
    """Answer a conversation in whatever form a reply is made.

    prefix: of the reply's id. wanted: None for what the request says. make_prompt: None where the
    messages are the prompt.
    """
    model, make_prompt = serving.model, make_prompt or rendered_request
    wanted = wanted or endpoint_options(request)
    rendered = await call.text_work(lambda: make_prompt(model, request, wanted))
    rules, reading, special = rendered.rules, rendered.rules.reading, model.special_tokens
    grammar = None
    if rules.is_held:
        grammar = await call.grammar_work(
            lambda: rules.grammar(constraint_of(request.given_form, special), special)
        )
    ids = Ids(prefix, request.request_id, call.state.new_id())
    plan = make_plan(
        model,
        request,
        [rendered.prompt],
        wanted,
        bad_words=rendered.bad_words,
        grammar=grammar,
        engine_id=ids.engine,
        timeout_s=timeout_s(call, request),
    )
    reply = make_reply(head_of(call, serving, ids), rendered.prompt.token_ids, reading)
    kept = () if reading is None else reading.kept_ids
    return await answer(call, serving, ticket, request, plan, reply, kept_special_ids=kept)


def endpoint_options(request: ChatCompletionRequest) -> EndpointOptions:
    """What a request for a conversation says."""
    return EndpointOptions(
        max_tokens=request.wanted_tokens,
        tokens_param=request.tokens_param,
        logprobs=request.top_logprobs if request.logprobs else None,
        logprobs_param="top_logprobs",
        candidates=request.n,
        prompt_logprobs=request.prompt_logprobs,
    )


class RenderedRequest(NamedTuple):
    """The results of work on a request's texts."""

    prompt: Prompt
    bad_words: tuple[tuple[int, ...], ...]
    rules: AnswerRules
    """Those of the answers, and how they are read."""


MakePrompt = Callable[[ServedModel, ChatCompletionRequest, EndpointOptions], RenderedRequest]
"""Takes long for long texts."""


def rendered_request(
    model: ServedModel, request: ChatCompletionRequest, wanted: EndpointOptions
) -> RenderedRequest:
    """The messages as a prompt, and how answers to it are read."""
    keep, choice = request.truncate_prompt_tokens, request.choice_of_tools
    conversation = conversation_of(model, request, choice)
    rendering = render(
        model,
        conversation,
        add_special_tokens=request.add_special_tokens,
        must_fit=keep is None,
    )
    token_ids = rendering.token_ids
    if keep is not None:
        context = model.limits.context_tokens
        token_ids = last_tokens(token_ids, keep, room=wanted.room, context_tokens=context)
    marks = model.marks_after(request.chat_template)
    reading = reading_of(
        marks,
        tools=argument_schemas(conversation.tools),
        may_call=choice.may_call,
        prompt=rendering.text,
        continues=request.continue_final_message,
    )
    variables = {**model.template_defaults, **conversation.variables}
    rules = AnswerRules(
        request,
        choice,
        has_form=bool(request.given_form),
        shows_tools=bool(conversation.tools),
        marks=marks,
        reading=reading,
        variables=variables,
    )
    bad_words = bad_word_ids(request.bad_words, model.tokenizer) + rules.banned_ids
    thinking = None
    if (most := request.thinking_tokens) is not None:
        thinking = thinking_budget(most, rules.reasoning_start())
    return RenderedRequest(Prompt(token_ids, _PARAM, thinking=thinking), bad_words, rules)


def conversation_of(
    model: ServedModel, request: ChatCompletionRequest, choice: ToolChoice
) -> Conversation:
    """What a request has rendered. choice: its choice of tools."""
    shows_tools = choice.may_call or not model.excludes_unused_tools
    return Conversation(
        request.messages,
        opens_turn=request.opens_turn,
        continues=request.continue_final_message,
        variables=template_variables(request.chat_template_kwargs, request.effort),
        template=request.chat_template,
        tools=request.tools if shows_tools else (),
    )
