"""A conversation as a prompt, and how answers to it are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace.conversation.answer_rules import AnswerRules
from headrace.conversation.reading import reading_of
from headrace.conversation.request import argument_schemas, template_variables
from headrace.protocol.openai.chat import ChatCompletionRequest
from headrace.protocol.openai.tools import ToolChoice
from headrace.server.model.served import ServedModel
from headrace.server.prompts.bad_words import bad_word_ids
from headrace.server.prompts.params import thinking_budget
from headrace.server.prompts.plan import EndpointOptions
from headrace.server.prompts.prompt import Conversation, Prompt, last_tokens, render

_PARAM = "messages"


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
