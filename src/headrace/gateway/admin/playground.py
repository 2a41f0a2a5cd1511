"""POST /api/try: one conversation sent to several models side by side, each answer as it comes.

Requests are handled like those of any client, on the administrator's own account: they are billed
as usual and are in the ledger under the key `admin`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from headrace.gateway.admin.call import Call
from headrace.gateway.admin.errors import AdminError
from headrace.gateway.admin.event_stream import Events, EventStream
from headrace.gateway.admin.gatehouse import Asked
from headrace.gateway.admin.pieces import Said, said_in_stream, said_whole
from headrace.gateway.ledger.report import dollars
from headrace.gateway.serving.entry import Entry

# Columns that can be read beside each other.
_MOST_MODELS = 6
# Their events together, before a page that does not read holds the models up.
_MOST_WAITING = 256
# A line comes when the request is over; without it only tokens and cost are missing.
_LINE_S = 2.0
_OURS = ("model", "models", "messages", "stream", "stream_options")

Kind = Literal["began", "text", "reasoning", "tool_call", "failed", "ended"]
Tried = Annotated[str, Meta(min_length=1, max_length=256)]


class TryWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request of the playground."""

    models: Annotated[tuple[Tried, ...], Meta(min_length=1, max_length=_MOST_MODELS)]
    messages: Annotated[
        Annotated[tuple[dict[str, Any], ...], Meta(min_length=1, max_length=1000)],
        Meta(description="As in a chat completion."),
    ]
    params: Annotated[
        dict[str, Any],
        Meta(description="As in a chat completion (temperature, max_tokens, seed ...)."),
    ] = {}
    stream: Annotated[bool, Meta(description="Whether answers are streamed.")] = True


class TryEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event of one model's answer. began: which target answers, and with which status. text,
    reasoning, tool_call: a piece of the answer. failed: why there is none, or no more. ended: what
    it took, as far as known."""

    at: Annotated[int, Meta(description="The index of the model in the request.")]
    model: str
    kind: Kind
    text: str = ""
    id: str = ""
    status: int | None = None
    provider: str | None = None
    target: str | None = None
    attempts: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_nusd: int | None = None
    cost_usd: str | None = None
    first_token_ms: float | None = None
    total_ms: float | None = None
    finish: str | None = None


async def try_models(call: Call) -> Response:
    """Answers as a stream of events; leaving ends all of them."""
    wanted = await call.body(TryWanted)
    for name in _OURS:
        if name in wanted.params:
            raise AdminError(400, f"params.{name}: give it outside params", "bad_request")
    return EventStream(lambda: _events(call, wanted), call.shared)


async def _events(call: Call, wanted: TryWanted) -> Events:
    told: asyncio.Queue[TryEvent | None] = asyncio.Queue(_MOST_WAITING)

    async def one(at: int, model: str) -> None:
        try:
            async with aclosing(_ask(call, wanted, at, model)) as events:
                async for event in events:
                    await told.put(event)
        finally:
            left.discard(at)
            if not left:
                await told.put(None)

    left = set(range(len(wanted.models)))
    tasks = [asyncio.ensure_future(one(at, model)) for at, model in enumerate(wanted.models)]
    try:
        while (event := await told.get()) is not None:
            yield event
    finally:
        for task in tasks:
            task.cancel()
        while not told.empty():  # nobody waits for room in it any more
            told.get_nowait()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _ask(
    call: Call, wanted: TryWanted, at: int, model: str
) -> AsyncGenerator[TryEvent, None]:
    id = call.shared.new_id()
    body = _body(wanted, model)

    def is_its_line(entry: Entry) -> bool:
        return entry.id == id and not entry.purpose

    with call.house.feed.listening(is_its_line, 1) as listener:
        failure = ""
        try:
            async with call.house.ask(body, id) as asked:
                yield _began(at, model, id, asked)
                async for said in _said(asked, stream=wanted.stream):
                    failure = failure or said.failure
                    if said.kind is not None:
                        yield TryEvent(at=at, model=model, kind=said.kind, text=said.text)
        except (OSError, ValueError) as error:
            failure = f"the gateway's reply could not be read: {error}"
        if failure:
            yield TryEvent(at=at, model=model, kind="failed", text=failure)
        try:
            line = await asyncio.wait_for(listener.next(), _LINE_S)
        except TimeoutError:
            yield TryEvent(at=at, model=model, kind="ended", id=id)
        else:
            yield _ended(at, model, line)


def _body(wanted: TryWanted, model: str) -> bytes:
    body = {**wanted.params, "model": model, "messages": wanted.messages, "stream": wanted.stream}
    return msgspec.json.encode(body)


async def _said(asked: Asked, *, stream: bool) -> AsyncIterator[Said]:
    if stream and asked.status == 200:
        async for said in said_in_stream(asked.pieces):
            yield said
        return
    whole = b"".join([piece async for piece in asked.pieces])
    for said in said_whole(whole):
        yield said


def _began(at: int, model: str, id: str, asked: Asked) -> TryEvent:
    attempts = asked.headers.get("x-headrace-attempts", "")
    return TryEvent(
        at=at,
        model=model,
        kind="began",
        id=id,
        status=asked.status,
        provider=asked.headers.get("x-headrace-provider"),
        target=asked.headers.get("x-headrace-target"),
        attempts=int(attempts) if attempts.isdigit() else None,
    )


def _ended(at: int, model: str, line: Entry) -> TryEvent:
    usage = line.usage
    return TryEvent(
        at=at,
        model=model,
        kind="ended",
        id=line.id,
        status=line.status,
        provider=line.provider,
        target=line.target,
        attempts=len(line.attempts),
        prompt_tokens=None if usage is None else usage.prompt_tokens,
        completion_tokens=None if usage is None else usage.completion_tokens,
        cost_nusd=line.cost_nusd,
        cost_usd=None if line.cost_nusd is None else dollars(line.cost_nusd),
        first_token_ms=line.first_token_ms,
        total_ms=line.total_ms,
        finish=line.finish,
    )
