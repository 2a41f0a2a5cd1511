"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from starlette.responses import Response

from headrace.conversation.answer_grammar import answer_grammar, has_grammar
from headrace.conversation.reading import AnswerReading, call_marks, reading_of
from headrace.conversation.request import allowed_format, argument_schemas, template_variables
from headrace.conversation.thinking import start_of_reading
from headrace.protocol.openai.chat import ChatCompletionRequest
from headrace.protocol.openai.fields import CHAT
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
    grammar = None
    if has_grammar(request):
        opened = rendered.reading is not None and rendered.reading.reasoning_opened
        own = template_variables(request.chat_template_kwargs, request.effort)
        format = allowed_format(
            model.format_of(request.chat_template),
            {**model.template_defaults, **own},
            opened=opened,
        )
        grammar = await call.grammar_work(
            lambda: answer_grammar(
                request,
                format,
                opened=opened,
                special=model.special_tokens,
            )
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
    reply = make_reply(head_of(call, serving, ids), rendered.prompt.token_ids, rendered.reading)
    kept = () if rendered.reading is None else rendered.reading.kept_ids
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
    reading: AnswerReading | None


MakePrompt = Callable[[ServedModel, ChatCompletionRequest, EndpointOptions], RenderedRequest]
"""Takes long for long texts."""


def rendered_request(
    model: ServedModel, request: ChatCompletionRequest, wanted: EndpointOptions
) -> RenderedRequest:
    """The messages as a prompt, and how answers to it are read."""
    keep, conversation = request.truncate_prompt_tokens, conversation_of(model, request)
    rendering = render(
        model,
        conversation,
        add_special_tokens=request.add_special_tokens,
        must_fit=keep is None,
    )
    context = model.limits.context_tokens
    kept = last_tokens(rendering.token_ids, keep, room=wanted.room, context_tokens=context)
    format, may_call = model.format_of(request.chat_template), request.choice_of_tools.may_call
    reading = reading_of(
        format,
        model.tokenizer,
        tools=argument_schemas(conversation.tools),
        may_call=may_call,
        prompt=rendering.text,
        continues=request.continue_final_message,
    )
    bad_words = bad_word_ids(request.bad_words, model.tokenizer)
    # What a form holds does not call, and a mask beside its own would keep its spans from it.
    if conversation.tools and not may_call and not request.given_form:
        bad_words += call_marks(format, model.tokenizer)
    thinking = thinking_budget(request.thinking_tokens, start_of_reading(reading))
    return RenderedRequest(Prompt(kept, _PARAM, thinking=thinking), bad_words, reading)


def conversation_of(model: ServedModel, request: ChatCompletionRequest) -> Conversation:
    """What a request has rendered."""
    shows_tools = request.choice_of_tools.may_call or not model.excludes_unused_tools
    return Conversation(
        request.messages,
        opens_turn=request.opens_turn,
        continues=request.continue_final_message,
        variables=template_variables(request.chat_template_kwargs, request.effort),
        template=request.chat_template,
        tools=request.tools if shows_tools else (),
    )
