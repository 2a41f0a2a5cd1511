"""The parent's admin port: it shows the workers' state, and tries out requests itself."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from headrace.errors import RequestError
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.caller import Caller
from headrace.gateway.admin.gatehouse import Explained, WorkerStanding
from headrace.gateway.admin.server import AdminPlace, admin_here
from headrace.gateway.assemble import Current, Surroundings, made, with_request_log
from headrace.gateway.serving.entry import Entry
from headrace.gateway.settings.admin import AdminSettings
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.secret import Sources
from headrace.gateway.telemetry.telemetry import Telemetry
from headrace.gateway.workers import messages
from headrace.gateway.workers.link import LinkLostError
from headrace.gateway.workers.shared import Shared
from headrace.gateway.workers.supervisor import Supervisor


class ParentAdmin:
    """The admin server of a parent; it listens once made.

    `takers` get each ledger line of the parent's own requests. `reload` reads the configuration
    again in all processes and returns the problem, "" for none.
    """

    def __init__(
        self,
        path: Path,
        settings: GatewaySettings,
        admin: AdminSettings,
        accounts: Accounts,
        shared: Shared,
        supervisor: Supervisor,
        reload: Callable[[], Awaitable[str]],
        takers: Iterable[Callable[[Entry], None]],
    ) -> None:
        """Raises ConfigError if the address is taken."""
        self._path = path
        self._accounts = accounts
        place = AdminPlace.of(admin, Sources(os.environ, path.parent))
        self._telemetry = Telemetry()
        around = Surroundings(telemetry=self._telemetry, takers=tuple(takers))
        self._around = with_request_log(place.within(around), path, settings)
        self._current = Current(made(path, settings, accounts, self._around))
        self._current.gateway.take_over()
        self._server = admin_here(
            place, self._current, path, accounts, self._around, reload, Asked(shared, supervisor)
        )
        shared.hear(place.feed.take)

    @property
    def url(self) -> str:
        """The address of the page."""
        return self._server.url

    def start(self) -> None:
        """Start answering."""
        self._server.start()

    def take(self, settings: GatewaySettings) -> None:
        """Use another configuration, which was checked."""
        self._current.replace(made(self._path, settings, self._accounts, self._around))

    async def end(self) -> None:
        """Stop answering."""
        await self._server.end()
        self._current.gateway.close()
        if self._around.request_log is not None:
            self._around.request_log.close()
        self._telemetry.close()


class Asked:
    """The workers, as the admin API sees them, queried over their links."""

    def __init__(self, shared: Shared, supervisor: Supervisor) -> None:
        self._shared = shared
        self._supervisor = supervisor

    async def standings(self) -> tuple[WorkerStanding, ...]:
        """See in_workers.Workers."""
        figures_of = await self._shared.figures()
        return tuple(
            WorkerStanding(
                worker=str(member.number), in_flight=figures.in_flight, standing=figures.standing
            )
            for member, figures in figures_of
        )

    async def explain(self, model: str, body: bytes, caller: Caller | None) -> Explained | None:
        """See in_workers.Workers."""
        for member in self._shared.serving():
            if member.link is None:
                continue
            try:
                answer = await member.link.ask(messages.AskExplain(model, body, caller))
            except LinkLostError:
                continue
            if isinstance(answer, messages.Explanation):
                if answer.explained is None:
                    raise RequestError(answer.problem, code=answer.code)
                return answer.explained
        return None

    async def take_out(self, target: str, *, out: bool) -> bool:
        """See in_workers.Workers."""
        problems = await self._supervisor.ask_all(messages.TakeOut(target, out))
        return any(not problem for problem in problems)
