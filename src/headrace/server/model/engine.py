"""What the server needs of an engine; `headrace.engine.process.supervisor` has the real one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Protocol

from headrace.engine.messages import EngineInfo, Output, Stats, Submit
from headrace.engine.process.status import EngineStatus


class EngineLike(Protocol):
    """An engine that has been ready once. Used from one event loop."""

    @property
    def info(self) -> EngineInfo:
        """What does not change while it runs; of the latest one where it was restarted."""

    @property
    def stats(self) -> Stats:
        """The latest known state; counters begin anew with a restart."""

    @property
    def status(self) -> EngineStatus:
        """Whether it serves, and if not, what of it."""

    def generate(
        self, submit: Submit, *, on_started: Callable[[float], None] | None = None
    ) -> AsyncGenerator[Output, None]:
        """Outputs of a new request, the last with a finish_reason. Closing it early cancels.

        on_started: called once, with the seconds it waited, when the request leaves the queue.
        Raises RequestError at once for a request it cannot serve, EngineDeadError when it does not
        serve, now or while iterating. Nothing is submitted before the first iteration.
        """

    async def reset_prefix_cache(self) -> int:
        """Forget every cached block that no request holds; how many. Raises EngineDeadError."""

    async def restart(self, reason: str) -> None:
        """End the engine at once and start another; open streams raise EngineDeadError(reason).

        Returns before that one serves. Raises EngineRestartingError while one is being started.
        """

    async def close(self) -> None:
        """End it; open streams raise EngineDeadError."""
