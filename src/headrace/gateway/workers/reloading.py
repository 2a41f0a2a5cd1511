"""Another configuration in a worker, in two steps: all workers use it, or none does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from headrace.errors import HeadraceError, RequestError
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.caller import Caller
from headrace.gateway.accounts.records import Records
from headrace.gateway.admin.in_process import explained
from headrace.gateway.assemble import CliOverrides, Current, Surroundings, made, settings_given
from headrace.gateway.building.accounts import records_of
from headrace.gateway.building.gateway import Gateway
from headrace.gateway.explaining import explanation_of
from headrace.gateway.settings.secret import Sources
from headrace.gateway.workers import messages


class _Ready(NamedTuple):
    gateway: Gateway
    records: Records


class Reloading:
    """The reloading of one worker."""

    def __init__(
        self,
        path: Path,
        given: CliOverrides,
        accounts: Accounts,
        current: Current,
        around: Surroundings,
    ) -> None:
        self._path = path
        self._given = given
        self._accounts = accounts
        self._current = current
        self._around = around
        self._ready: _Ready | None = None

    def prepare(self, text: str) -> str:
        """Make the gateway of a configuration; return the problem, "" for none."""
        self.forget()
        try:
            settings = settings_given(text, self._path, self._given)
            records = records_of(settings.access, Sources(os.environ, self._path.parent))
            self._ready = _Ready(made(self._path, settings, self._accounts, self._around), records)
            self._accounts.check(records)
        except HeadraceError as error:
            self.forget()
            return str(error)
        return ""

    def take(self) -> str:
        """Use what was prepared from now on."""
        if self._ready is None:
            return "nothing was prepared"
        ready, self._ready = self._ready, None
        try:
            self._accounts.reconfigure(ready.records)
        except HeadraceError as error:
            ready.gateway.close()
            return str(error)
        self._current.replace(ready.gateway)
        return ""

    def forget(self) -> None:
        """Discard what was prepared."""
        if self._ready is not None:
            self._ready.gateway.close()
            self._ready = None

    def explain(self, model: str, body: bytes, caller: Caller | None) -> messages.Explanation:
        """See Gatehouse.explain."""
        gateway = self._current.gateway
        now_s = gateway.serving.clock_ns() * 1e-9
        try:
            explanation = explanation_of(gateway, model, body, now_s=now_s, caller=caller)
        except RequestError as error:
            return messages.Explanation(None, str(error), error.code)
        return messages.Explanation(explained(explanation))

    def take_out(self, target: str, *, out: bool) -> str:
        """See Gatehouse.take_out."""
        targets = [
            candidate
            for route in self._current.gateway.router.routes.values()
            for candidate in route.targets
            if candidate.name == target
        ]
        for candidate in targets:
            if out:
                candidate.health.take_out()
            else:
                candidate.health.put_back()
        return "" if targets else "there is no such target"
