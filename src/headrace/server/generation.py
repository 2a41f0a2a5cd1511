"""From the engine's token ids to pieces of text: one prompt's way through detokenizer and stops.

A piece is what came at one time. Its text may lag behind its tokens (a character or a possible
stop string is not complete yet); its tokens and log probabilities never do. Closing a generation
early cancels the request in the engine, wherever it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple

from headrace.engine.messages import Output, Submit, TokenLogprob
from headrace.errors import EngineDeadError
from headrace.protocol.openai.sampling import SamplingFields
from headrace.server.api_error import GenerationError
from headrace.server.connection import end_tasks
from headrace.server.pulse import Pulse
from headrace.server.served import ServedModel
from headrace.telemetry.requests import RequestMetrics
from headrace.text import TextStream

logger = logging.getLogger(__name__)

# Pieces of all prompts of a request that wait to be written; what a slow client leaves beyond them
# waits in the engine's client, which has a bound of its own.
QUEUED_PIECES = 64


class Piece(NamedTuple):
    """New text and tokens of a choice; the last has a finish_reason ("stop" or "length").

    stop_reason: the stop string, or the id from stop_token_ids, that ended it. cached_tokens:
    prompt tokens found in the prefix cache. text_offsets: where each token's text begins, in
    characters of the choice's text.
    """

    text: str
    token_ids: Sequence[int]
    logprobs: Sequence[TokenLogprob] = ()
    text_offsets: Sequence[int] = ()
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    cached_tokens: int = 0


def _piece(stream: TextStream, output: Output) -> Piece:
    """The piece of an output; usage and log probabilities end with what completed a stop string."""
    taken = stream.take(output.token_ids, output.finish_reason)
    stopped = taken.stop is not None
    return Piece(
        text=taken.text,
        token_ids=output.token_ids[: taken.num_tokens],
        logprobs=(output.logprobs or [])[: taken.num_tokens],
        text_offsets=taken.text_offsets,
        finish_reason="stop" if stopped else output.finish_reason,
        stop_reason=taken.stop if stopped else output.stop_reason,
        cached_tokens=output.cached_tokens,
    )


def generate(
    model: ServedModel,
    submit: Submit,
    fields: SamplingFields,
    *,
    arrival_s: float,
    metrics: RequestMetrics,
    pulse: Pulse,
) -> AsyncGenerator[Piece, None]:
    """Pieces of one prompt, the last with a finish_reason. Nothing runs before the first is asked.

    Raises RequestError at once where the engine refuses the request, and, while iterating,
    EngineDeadError or GenerationError.
    """
    outputs = model.engine.generate(submit)
    stream = model.text_stream(submit.prompt_token_ids, fields)
    return _pieces(outputs, stream, submit, arrival_s, metrics, pulse)


async def _pieces(
    outputs: AsyncGenerator[Output, None],
    stream: TextStream,
    submit: Submit,
    arrival_s: float,
    metrics: RequestMetrics,
    pulse: Pulse,
) -> AsyncGenerator[Piece, None]:
    max_tokens = submit.params.max_tokens or 0
    timeline = metrics.arrived(arrival_s, len(submit.prompt_token_ids), max_tokens)
    reason, preemptions = "abort", 0
    try:
        with pulse.open_request():
            async with aclosing(outputs):
                async for output in outputs:
                    pulse.heard()
                    preemptions = output.num_preemptions
                    if output.cache_miss is not None:
                        logger.debug(
                            "request %s: not cached: %s", submit.request_id, output.cache_miss
                        )
                    if output.finish_reason == "error":
                        reason = "error"
                        raise GenerationError(output.error or "the engine gave no cause")
                    if output.finish_reason == "abort":
                        raise EngineDeadError("it gave up all requests")
                    piece = _piece(stream, output)
                    metrics.tokens(
                        timeline,
                        len(piece.token_ids),
                        queue_s=output.queue_s,
                        prefill_s=output.prefill_s,
                    )
                    if piece.finish_reason is not None:
                        reason = piece.finish_reason
                        yield piece
                        return
                    yield piece
        reason = "error"
        raise GenerationError("the engine ended the request without a reason")
    finally:
        logger.debug("request %s: %s, preempted %d times", submit.request_id, reason, preemptions)
        metrics.ended(timeline, reason)


async def merge(
    sources: Sequence[AsyncGenerator[Piece, None]],
) -> AsyncGenerator[tuple[int, Piece], None]:
    """Pieces of several generations as they come, each with its source's index.

    All run at once; the first failure ends all. Closing this closes them.
    """
    if len(sources) == 1:
        async with aclosing(sources[0]) as only:
            async for piece in only:
                yield 0, piece
        return
    queue: asyncio.Queue[tuple[int, Piece | Exception | None]] = asyncio.Queue(QUEUED_PIECES)

    async def pump(index: int, source: AsyncGenerator[Piece, None]) -> None:
        end: Exception | None = None
        try:
            async with aclosing(source):
                async for piece in source:
                    await queue.put((index, piece))
        except Exception as failure:  # handed to whoever reads the queue, which raises it
            end = failure
        await queue.put((index, end))

    tasks = [asyncio.ensure_future(pump(index, source)) for index, source in enumerate(sources)]
    running = len(tasks)
    try:
        while running:
            index, item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                running -= 1
            else:
                yield index, item
    finally:
        await end_tasks(*tasks)
