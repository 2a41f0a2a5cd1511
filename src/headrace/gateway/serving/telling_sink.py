"""A sink that registers the ids in an answer before they reach the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from headrace.gateway.serving.incoming import Sink
from headrace.gateway.serving.told_ids import ToldIds, ids_in_answer, ids_in_events


class TellingSink:
    """A Sink for one passed-through answer; `tell` is called with its ids before they go out."""

    def __init__(self, sink: Sink, tell: Callable[[ToldIds], Awaitable[None]]) -> None:
        self._sink = sink
        self._tell = tell

    async def start(self, status: int, headers: list[tuple[str, str]]) -> None:
        """See Sink."""
        await self._sink.start(status, headers)

    async def write(self, piece: bytes) -> None:
        """See Sink. `piece` holds whole events."""
        await self._tell(ids_in_events(piece))
        await self._sink.write(piece)

    async def last(self, piece: bytes) -> None:
        """See Sink. `piece` is a whole answer."""
        await self._tell(ids_in_answer(piece))
        await self._sink.last(piece)

    async def end(self) -> None:
        """See Sink."""
        await self._sink.end()
