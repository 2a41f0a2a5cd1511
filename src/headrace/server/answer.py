"""From a plan to a reply: what chat completions and completions do alike.

All requests of a plan run at once and their pieces go into one reply, whole or as events. The first
failure ends the reply with that error; whatever ends it cancels what still runs.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator
from contextlib import aclosing
from functools import partial
from typing import Protocol

import msgspec
from starlette.responses import Response

from headrace.protocol.openai.sampling import SamplingFields
from headrace.server.admission.admission import Ticket
from headrace.server.call import Call
from headrace.server.connection import unless_gone
from headrace.server.generation.merge import Pieces, merge, with_prompt_logprobs
from headrace.server.generation.pieces import Job, Piece, generate
from headrace.server.prompts.plan import SubmitPlan, time_left_s
from headrace.server.replies.event_stream import EventStream
from headrace.server.replies.reply import Head, StreamForm, json_reply
from headrace.server.state import Serving

logger = logging.getLogger(__name__)

# Makes the engine's names of equal request ids differ.
_RANDOM_DIGITS = 12


class Reply(Protocol):
    """A reply made of pieces. Use `events` and `last_events`, or `add` and `whole`."""

    @property
    def form(self) -> StreamForm:
        """What its stream is beside its events."""

    @property
    def num_broken_calls(self) -> int:
        """Calls so far whose arguments are not a JSON object."""

    def events(self, index: int, piece: Piece) -> Iterator[bytes]:
        """The events of a piece of request `index`."""

    def last_events(self) -> Iterator[bytes]:
        """What follows the last piece."""

    def add(self, index: int, piece: Piece) -> None:
        """Take a piece of a reply that is not streamed."""

    def whole(self) -> msgspec.Struct | bytes:
        """The reply made of all pieces added, or its JSON."""


class Ids:
    """The ids of one call: reply is the client's view, engine what the engine's requests are of."""

    def __init__(self, prefix: str, requested: str | None, random: str) -> None:
        self.reply = f"{prefix}{requested or random}"
        self.engine = f"{self.reply}-{random[:_RANDOM_DIGITS]}" if requested else self.reply


def head_of(call: Call, serving: Serving, ids: Ids) -> Head:
    """What each part of the reply to a call repeats."""
    model = serving.model
    return Head(ids.reply, int(call.state.wall_clock()), model.name, model.fingerprint)


def timeout_s(call: Call, fields: SamplingFields) -> float | None:
    """Seconds that are left to a call, counted from its arrival."""
    spent_s = call.state.clock() - call.arrival_s
    return time_left_s(fields.timeout_s, call.state.config.request_timeout, spent_s)


async def admitted(
    call: Call, num_requests: int, work: Callable[[Ticket], Awaitable[Response]]
) -> Response:
    """What `work` answers with places for so many requests; ApiError 429 where there are none."""
    ticket = call.state.admission.enter(num_requests, call.key)
    try:
        response = await work(ticket)
    except BaseException:
        ticket.close()
        raise
    if isinstance(response, EventStream):
        response.on_end = ticket.close
    else:
        ticket.close()
    return response


async def answer(
    call: Call,
    serving: Serving,
    ticket: Ticket,
    fields: SamplingFields,
    plan: SubmitPlan,
    reply: Reply,
    *,
    kept_special_ids: Collection[int] = (),
) -> Response:
    """Run a plan. Raises ApiError 429 where its prompts find no place in the queue.

    kept_special_ids: special tokens that the text of answers has even where they are skipped.
    """
    ticket.add_tokens(plan.queued_tokens)
    model = serving.model
    turns = ticket.ask_turns([submit.priority for submit in plan.submits])
    sources = []
    for index, submit in enumerate(plan.submits):
        prompt = plan.prompt_of(index)
        job = Job(
            submit,
            model.text_stream(
                submit.prompt_token_ids,
                fields,
                text_offset=len(prompt.text),
                kept_special_ids=kept_special_ids,
            ),
            call.arrival_s,
            prompt_index=index // plan.choices,
            n=fields.n,
            started=partial(ticket.started, index),
            ended=partial(ticket.ended, index),
            turn=turns[index],
        )
        sources.append(generate(model.engine, job, metrics=serving.requests))
    merged = merge(sources)
    if plan.asks_of_prompt:
        merged = with_prompt_logprobs(merged, plan.choices)
    if fields.stream:
        return EventStream(
            _events(merged, reply, call.request_id),
            request_id=call.request_id,
            clock=call.state.clock,
            headers=call.headers,
            keep_alive_s=call.state.config.sse_keep_alive,
            form=reply.form,
        )
    whole = await unless_gone(call.http.receive, _whole(merged, reply, call.request_id))
    if isinstance(whole, bytes):
        return Response(whole, media_type="application/json")
    return json_reply(whole)


async def _events(merged: Pieces, reply: Reply, request_id: str) -> AsyncGenerator[bytes, None]:
    async with aclosing(merged):
        async for index, piece in merged:
            if events := b"".join(reply.events(index, piece)):
                yield events
    _log_broken_calls(reply, request_id)
    yield b"".join(reply.last_events())


async def _whole(merged: Pieces, reply: Reply, request_id: str) -> msgspec.Struct | bytes:
    async with aclosing(merged):
        async for index, piece in merged:
            reply.add(index, piece)
    _log_broken_calls(reply, request_id)
    return reply.whole()


def _log_broken_calls(reply: Reply, request_id: str) -> None:
    """Say that the model wrote what a client cannot read, once a request; no text of the answer,
    which may be the user's own."""
    if reply.num_broken_calls:
        logger.warning(
            "request %s: the arguments of %d of the model's tool calls are not a JSON object, as "
            "it wrote them or as the answer was cut off; strict: true in a tool, or "
            "tool_choice: required, has only whole calls be written",
            request_id,
            reply.num_broken_calls,
        )
