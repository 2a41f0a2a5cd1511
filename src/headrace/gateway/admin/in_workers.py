"""The gatehouse of a parent of several workers.

What a page tries is answered by the parent itself, on the administrator's account; all else is of
the workers.
"""

from __future__ import annotations

from typing import Any, Protocol

from headrace.gateway.accounts.caller import Caller
from headrace.gateway.admin.gatehouse import Explained, WorkerStanding
from headrace.gateway.admin.in_process import InProcess, take_out


class Workers(Protocol):
    """The interface to the workers."""

    async def standings(self) -> tuple[WorkerStanding, ...]:
        """The state of each worker."""

    async def explain(self, model: str, body: bytes, caller: Caller | None) -> Explained | None:
        """The explanation by one of them, as each has its own view of targets; None if none
        answers. Raises RequestError."""

    async def take_out(self, target: str, *, out: bool) -> bool:
        """Take a target out in each; whether one of them has the target."""


class InWorkers(InProcess):
    """The Gatehouse of a gateway with workers, which answer clients."""

    def __init__(self, *arguments: Any, workers: Workers, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._workers = workers

    async def standings(self) -> tuple[WorkerStanding, ...]:
        """See Gatehouse."""
        return await self._workers.standings()

    async def explain(self, model: str, body: bytes, key: str | None = None) -> Explained:
        """See Gatehouse."""
        caller = None if key is None else self._caller(key)
        told = await self._workers.explain(model, body, caller)
        return told or await super().explain(model, body, key)

    async def take_out(self, target: str, *, out: bool) -> bool:
        """See Gatehouse."""
        take_out(self.routes, target, out=out)
        return await self._workers.take_out(target, out=out)
