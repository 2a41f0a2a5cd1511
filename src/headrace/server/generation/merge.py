"""Pieces of several choices as one stream, as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from headrace.server.connection import end_tasks
from headrace.server.generation.pieces import LogprobOfPrompt, Piece

Pieces = AsyncGenerator[tuple[int, Piece], None]

# Pieces of all choices of a call that wait to be written; what a slow client leaves beyond them
# waits in the engine's client, which has a bound of its own.
QUEUED_PIECES = 64


async def merge(sources: Sequence[AsyncGenerator[Piece, None]]) -> Pieces:
    """Pieces of several choices as they come, each with its source's index.

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


async def with_prompt_logprobs(merged: Pieces, choices: int) -> Pieces:
    """The same pieces, where the first choice of each prompt asks for the prompt's logprobs.

    choices: per prompt; those of the first have the indices 0 to choices - 1, and so on. The first
    piece of every choice has the logprobs, so the others wait for that of their prompt's first.
    """
    known: dict[int, LogprobOfPrompt | None] = {}
    waiting: dict[int, list[tuple[int, Piece]]] = {}
    begun: set[int] = set()

    def told(index: int, piece: Piece) -> tuple[int, Piece]:
        first = index not in begun
        begun.add(index)
        return index, piece._replace(prompt_logprobs=known[index // choices] if first else None)

    async with aclosing(merged):
        async for index, piece in merged:
            prompt = index // choices
            if piece.prefill is not None:
                yield index, piece
            elif prompt not in known:
                waiting.setdefault(prompt, []).append((index, piece))
                complete = piece.prompt_logprobs is not None or piece.finish_reason is not None
                if index % choices or not complete:
                    continue
                known[prompt] = piece.prompt_logprobs
                for one in waiting.pop(prompt):
                    yield told(*one)
            else:
                yield told(index, piece)
