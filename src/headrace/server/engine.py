"""What the server needs of an engine; `headrace.engine.client.EngineClient` is the real one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from headrace.engine.messages import EngineInfo, Output, Stats, Submit


class EngineLike(Protocol):
    """An engine that is ready. Used from one event loop."""

    @property
    def info(self) -> EngineInfo:
        """What does not change while it runs."""

    @property
    def stats(self) -> Stats:
        """The latest known state."""

    @property
    def alive(self) -> bool:
        """Whether its loop runs; False for ever once it has ended."""

    def generate(self, submit: Submit) -> AsyncGenerator[Output, None]:
        """Outputs of a new request, the last with a finish_reason. Closing it early cancels.

        Raises RequestError at once for a request it cannot serve, EngineDeadError when it has
        ended, now or while iterating. Nothing is submitted before the first iteration.
        """

    async def close(self) -> None:
        """End it; open streams raise EngineDeadError."""
