"""POST /v1/chat/completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from starlette.responses import Response

from headrace.conversation.answer_grammar import answer_grammar, has_grammar
from headrace.conversation.reading import AnswerReading, reading_of, reasoning_marks
from headrace.conversation.request import argument_schemas, template_variables
from headrace.engine.params import ThinkingBudget
from headrace.protocol.openai.chat import ChatCompletionRequest
from headrace.protocol.openai.fields import CHAT
from headrace.server.admission import Ticket
from headrace.server.answer import Ids, admitted, answer, head_of, timeout_s
from headrace.server.bad_words import bad_word_ids
from headrace.server.call import Call
from headrace.server.chat_reply import ChatReply
from headrace.server.plan import EndpointOptions, make_plan
from headrace.server.prompt import Conversation, Prompt, last_tokens, render
from headrace.server.reply import UsageEvents
from headrace.server.served import ServedModel
from headrace.server.state import Serving

if TYPE_CHECKING:
    from headrace.text import Tokenizer

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
    model = serving.model
    wanted = _wanted(request)
    asked = await call.text_work(lambda: _asked(model, request, wanted))
    grammar = None
    if has_grammar(request):
        opened = asked.reading is not None and asked.reading.reasoning_opened
        grammar = await call.grammar_work(
            lambda: answer_grammar(
                request,
                model.format_of(request.chat_template),
                opened=opened,
                special=model.special_tokens,
            )
        )
    ids = Ids("chatcmpl", request.request_id, call.state.new_id())
    plan = make_plan(
        model,
        request,
        [asked.prompt],
        wanted,
        bad_words=asked.bad_words,
        grammar=grammar,
        thinking=asked.thinking,
        engine_id=ids.engine,
        timeout_s=timeout_s(call, request),
    )
    reply = ChatReply(
        head_of(call, serving, ids),
        request,
        asked.prompt.token_ids,
        model.tokenizer,
        UsageEvents.of(request, forced=call.state.config.enable_force_include_usage),
        asked.reading,
        new_id=call.state.new_id,
    )
    kept = () if asked.reading is None else asked.reading.kept_ids
    return await answer(call, serving, ticket, request, plan, reply, kept_special_ids=kept)


def _wanted(request: ChatCompletionRequest) -> EndpointOptions:
    return EndpointOptions(
        max_tokens=request.wanted_tokens,
        tokens_param=request.tokens_param,
        logprobs=request.top_logprobs if request.logprobs else None,
        logprobs_param="top_logprobs",
        candidates=request.n,
        prompt_logprobs=request.prompt_logprobs,
    )


class _Asked(NamedTuple):
    """The results of work on a request's texts."""

    prompt: Prompt
    bad_words: tuple[tuple[int, ...], ...]
    reading: AnswerReading | None
    thinking: ThinkingBudget | None


def _asked(model: ServedModel, request: ChatCompletionRequest, wanted: EndpointOptions) -> _Asked:
    keep, choice = request.truncate_prompt_tokens, request.choice_of_tools
    conversation = Conversation(
        request.messages,
        opens_turn=request.opens_turn,
        continues=request.continue_final_message,
        variables=template_variables(request.chat_template_kwargs, request.effort),
        template=request.chat_template,
        tools=() if choice.kind == "none" else request.tools,
    )
    rendering = render(
        model,
        conversation,
        add_special_tokens=request.add_special_tokens,
        must_fit=keep is None,
    )
    context = model.limits.context_tokens
    kept = last_tokens(rendering.token_ids, keep, room=wanted.room, context_tokens=context)
    reading = reading_of(
        model.format_of(request.chat_template),
        model.tokenizer,
        tools=argument_schemas(conversation.tools),
        prompt=rendering.text,
        continues=request.continue_final_message,
    )
    return _Asked(
        Prompt(kept, _PARAM),
        bad_word_ids(request.bad_words, model.tokenizer),
        reading,
        _budget(request.thinking_tokens, reading, model.tokenizer),
    )


def _budget(
    max_tokens: int | None, reading: AnswerReading | None, tokenizer: Tokenizer
) -> ThinkingBudget | None:
    """The budget of an answer's reasoning; None where there is none, or nothing to bound."""
    marks = None if reading is None else reasoning_marks(reading.format, tokenizer)
    if max_tokens is None or reading is None or marks is None:
        return None
    opened = reading.reasoning_opened
    return ThinkingBudget(
        max_tokens=max_tokens,
        begin_ids=() if opened else marks.begin_ids,
        end_ids=marks.end_ids,
        is_open=opened,
    )
