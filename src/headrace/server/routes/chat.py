"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import Response

from headrace.conversation.reading import AnswerReading
from headrace.protocol.openai.chat import ChatCompletionRequest
from headrace.protocol.openai.fields import CHAT
from headrace.protocol.openai.legacy import is_legacy
from headrace.protocol.request import Parsed, parse_request
from headrace.server.admission.admission import Ticket
from headrace.server.answer import Ids, Reply, admitted, answer, head_of, timeout_s
from headrace.server.call import Call
from headrace.server.prompts.chat_prompt import MakePrompt, endpoint_options, rendered_request
from headrace.server.prompts.plan import EndpointOptions, make_plan
from headrace.server.replies.chat_reply import ChatReply
from headrace.server.replies.reply import Head, UsageEvents
from headrace.server.state import Serving
from headrace.structured.request import constraint_of


async def chat_completions(call: Call) -> Response:
    """Answer a conversation, whole or as events."""
    serving = call.state.generating(call.key)
    bounds = call.state.body_bounds

    def parse(body: bytes) -> Parsed[ChatCompletionRequest] | bytes:
        return body if is_legacy(body, bounds) else parse_request(body, CHAT, bounds)

    parsed = await call.read(parse)
    if isinstance(parsed, bytes):
        # Imported when such a call comes, as dialects are: it has functions in place of tools.
        from headrace.server.routes.legacy_functions import answer_legacy

        return await answer_legacy(call, serving, parsed)
    request = call.checked(parsed)
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
    grammar, checks = None, call.state.grammar_checks
    if rules.is_held:
        grammar = await call.grammar_work(
            lambda: rules.grammar(constraint_of(request.given_form, special), special, checks)
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
