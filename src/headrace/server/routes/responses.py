"""POST /v1/responses and /v1/responses/input_tokens: OpenAI's Responses API.

A response is in the store before its client has read its end, so that the next request may name it;
where it could not be stored, its end says so.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from starlette.responses import Response

from headrace.conversation.reading import AnswerReading
from headrace.errors import RequestError, shown
from headrace.protocol.body_json import decode_object
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.openai.chat import REASONING_EFFORTS
from headrace.server.api_error import ApiError
from headrace.server.call import Call
from headrace.server.dialects.read_body import ReadBody, with_request
from headrace.server.dialects.responses_reply import ResponsesReply
from headrace.server.replies.event_stream import EventStream
from headrace.server.replies.reply import Head
from headrace.server.responses_store.rows import Items, TooLongError, Turn
from headrace.server.routes.dialect_chat import answer_read, count_read

if TYPE_CHECKING:
    from headrace.protocol.dialects.openai_responses import OpenAIResponsesClient

_PREFIX = "resp_"
# Why what only OpenAI's own servers do is refused.
_REFUSED = {
    "background": "a response is made while its client waits; omit it",
    "conversation": "conversations are not kept; continue one with previous_response_id",
    "prompt": "prompts are not kept; send the prompt's text as instructions and input",
    "context_management": "nothing is compacted; send what is to be in the context",
}
_FORMS = ("text", "json_object", "json_schema")
# Kept apart from the call that becomes our own request: they say nothing of the answer.
_OURS = frozenset({*_REFUSED, "store", "previous_response_id", "truncation"})


@dataclass
class _TurnRequest:
    """A request for a turn of a conversation, and the response that it continues."""

    body: ReadBody
    """Its call has all of the conversation, and none of the fields that concern the store."""
    input: Any
    """Its own input."""
    stores: bool
    previous: int | None = None
    """The row that it continues, held until `release`."""
    release: Callable[[], None] = lambda: None


async def create_response(call: Call) -> Response:
    """Answer a conversation, whole or as events, and keep the response."""
    side = _side()
    serving = call.state.generating(call.key)
    turn = await _read(call)
    try:
        serving.model.check_name(turn.body.call.model)
        response = await _answered(call, side, turn)
    except BaseException:
        turn.release()
        raise
    if isinstance(response, EventStream):
        ended = response.on_end or (lambda: None)

        def release() -> None:
            ended()
            turn.release()

        response.on_end = release
    else:
        turn.release()
    return response


async def count_input_tokens(call: Call) -> Response:
    """The tokens of the prompt that a conversation would become."""
    from headrace.protocol.dialects.openai_responses.count_tokens import write_token_count

    model = call.state.serving().model
    turn = await _read(call)
    turn.release()
    body = write_token_count(await count_read(call, model, _side(), turn.body))
    return Response(body, media_type="application/json")


async def _answered(call: Call, side: OpenAIResponsesClient, turn: _TurnRequest) -> Response:
    serving = call.state.serving()
    made: list[ResponsesReply] = []

    def make_reply(
        read: ReadBody, head: Head, prompt_ids: list[int], reading: AnswerReading | None
    ) -> ResponsesReply:
        reply = ResponsesReply(
            side,
            read.call,
            head,
            prompt_ids,
            reading,
            serving.model.tokenizer,
            new_id=call.state.new_id,
            is_stored=turn.stores,
        )
        made.append(reply)
        return reply

    response = await answer_read(call, serving, side, turn.body, make_reply, prefix=_PREFIX)
    if not turn.stores:
        return response
    if isinstance(response, EventStream):
        (reply,) = made
        response.pass_through(partial(_kept_stream, call, turn, reply))
    elif response.status_code == 200:
        body = bytes(response.body)
        whole = msgspec.json.decode(body)
        if not await _is_kept(call, turn, whole["id"], body):
            response.body = msgspec.json.encode({**whole, "store": False})
            response.headers["content-length"] = str(len(response.body))
    return response


async def _kept_stream(
    call: Call, turn: _TurnRequest, reply: ResponsesReply, events: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """The events, the last of which waits until the response is stored, or could not be."""
    async with aclosing(events):
        async for event in events:
            whole = reply.ended
            if whole is not None and not await _is_kept(
                call, turn, whole["id"], msgspec.json.encode(whole)
            ):
                event = reply.not_stored(event)
            yield event


async def _is_kept(call: Call, turn: _TurnRequest, id: str, body: bytes) -> bool:
    """Keep a response; False where that did not succeed."""
    from headrace.protocol.dialects.openai_responses.request.stored_input import stored_input

    items = msgspec.json.encode(stored_input(turn.input, id))
    return await call.state.responses_store.add(Turn(id, call.owner, turn.previous, items, body))


class _Given(NamedTuple):
    """A body read alone, before anything is asked of the model."""

    body: bytes
    fields: dict[str, Any]
    call: ChatCall


async def _read(call: Call) -> _TurnRequest:
    """The body of a call with the conversation that it continues.

    Raises RequestError naming the field at fault, ApiError 400 for a response that is not stored.
    """

    def work(body: bytes) -> tuple[_Given, ReadBody | None]:
        # Read alone first: what is wrong with it is then named by its own places.
        given = _given(call, body)
        continues = given.fields.get("previous_response_id") is not None
        return given, None if continues else _read_body(given)

    given, read = await call.read(work)
    stores = given.fields.get("store") is not False and call.state.config.max_stored_responses > 0
    if read is None:
        turn = await _continued(call, given, stores=stores)
    else:
        turn = _TurnRequest(read, given.fields.get("input"), stores)
    call.note_ignored(turn.body.ignored)
    return turn


async def _continued(call: Call, given: _Given, *, stores: bool) -> _TurnRequest:
    """The turn of a stored conversation, which is held; raises as `_read`."""
    store = call.state.responses_store
    previous_id = given.fields["previous_response_id"]
    try:
        held = await store.hold(previous_id, call.owner, call.state.config.max_body_bytes)
    except TooLongError as error:
        raise RequestError(
            f"previous_response_id: {error}; begin another conversation",
            param="previous_response_id",
            code="conversation_too_long",
        ) from None
    if held is None:
        raise ApiError(
            400,
            f"Previous response with id {shown(previous_id)} not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    size = len(given.body) + sum(map(len, held.items))

    def work() -> ReadBody:
        return _read_body(_given(call, _joined(given.fields, held.items)))

    try:
        read = await call.state.large_bodies.result(call.key, size, work)
    except BaseException:
        store.release(held.number)
        raise
    call.body_bytes = size
    release = partial(store.release, held.number)
    return _TurnRequest(read, given.fields.get("input"), stores, held.number, release)


def _given(call: Call, body: bytes) -> _Given:
    """A body as its client's call; raises RequestError naming the field at fault."""
    http, state = call.http, call.state
    fields = decode_object(body, bounds=state.body_bounds)
    if fields.get("model") is None:  # one model is served
        fields["model"] = state.serving().model.name
        body = msgspec.json.encode(fields)
    _refuse(fields)
    return _Given(body, fields, _side().read_call(body, http.scope["path"], dict(http.headers)))


def _read_body(given: _Given) -> ReadBody:
    """What a body asks of the model; raises RequestError naming the field at fault."""
    more = _allowed_tools(given.fields)
    read = with_request(_adapted(given.call), given.body, _side(), more=more)
    _refuse_items(read.call)
    return read._replace(call=_with_extra(read.call, given.fields))


def _joined(fields: dict[str, Any], before: Items) -> bytes:
    """The body with all of the conversation as its input."""
    own = fields.get("input")
    if own is None:
        own = []
    elif isinstance(own, str):
        own = [{"role": "user", "content": own}]
    return msgspec.json.encode({**fields, "input": [*before, *own]})


def _refuse(fields: dict[str, Any]) -> None:
    for name, why in _REFUSED.items():
        value = fields.get(name)
        if value is not None and not (name == "background" and value is False):
            raise RequestError(
                f"{name}: this is not supported; {why}", param=name, code="unsupported"
            )
    truncation = fields.get("truncation")
    if truncation not in (None, "disabled"):
        raise RequestError(
            "truncation: only 'disabled' is supported, as nothing of a conversation is dropped "
            "unseen; send less input",
            param="truncation",
            code="unsupported",
        )

    reasoning, text = fields.get("reasoning"), fields.get("text")
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    _refuse_word(effort, "reasoning.effort", REASONING_EFFORTS)
    form = text.get("format") if isinstance(text, dict) else None
    kind = form.get("type") if isinstance(form, dict) else None
    _refuse_word(kind, "text.format.type", _FORMS)


def _refuse_word(word: Any, param: str, accepted: Sequence[str]) -> None:
    """Refuse a word that only OpenAI's own servers know; what is no word is refused elsewhere."""
    if isinstance(word, str) and word not in accepted:
        raise RequestError(
            f"{param}: {shown(word)} is not supported; accepted: {', '.join(accepted)}",
            param=param,
            code="unsupported",
        )


def _refuse_items(call: ChatCall) -> None:
    from headrace.protocol.dialects.openai_responses import needs_state

    for kind in needs_state(call):
        raise RequestError(
            f"input: items of type {kind} are not supported; send the item itself, or continue a "
            "response with previous_response_id",
            param="input",
            code="unsupported",
        )


def _adapted(call: ChatCall) -> ChatCall:
    """The call without fields that are answered here."""
    extra = {name: value for name, value in call.extra.items() if name not in _OURS}
    if _is_allowed_tools(extra.get("tool_choice")):
        del extra["tool_choice"]
    # Likeliest tokens are shown with log probabilities alone.
    top = call.top_logprobs if call.logprobs else None
    return msgspec.structs.replace(call, extra=extra, top_logprobs=top)


def _with_extra(call: ChatCall, fields: dict[str, Any]) -> ChatCall:
    """The call as the response repeats it."""
    kept = {name: fields[name] for name in _OURS if fields.get(name) is not None}
    if _is_allowed_tools(fields.get("tool_choice")):
        kept["tool_choice"] = fields["tool_choice"]
    return msgspec.structs.replace(call, extra={**call.extra, **kept})


def _allowed_tools(fields: dict[str, Any]) -> dict[str, Any]:
    """A choice among some of the tools, which has no neutral form."""
    choice = fields.get("tool_choice")
    return {"tool_choice": choice} if _is_allowed_tools(choice) else {}


def _is_allowed_tools(choice: Any) -> bool:
    return isinstance(choice, dict) and choice.get("type") == "allowed_tools"


def _side() -> OpenAIResponsesClient:
    from headrace.protocol.dialects.openai_responses import CLIENT

    return CLIENT
