"""A worker: one process that serves, and queries its parent for what all share.

The parent starts `python -m headrace.gateway.workers.process --link-fd N --listen-fd M` and sends
the text of the configuration as the first message. When the parent ends, the worker answers the
requests under way and ends too.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.gateway.accounts.alert import Alert
from headrace.gateway.assemble import (
    CliOverrides,
    Current,
    Surroundings,
    made,
    settings_given,
    with_request_log,
)
from headrace.gateway.building.accounts import accounts_of
from headrace.gateway.listening import DRAIN_S, listen_until
from headrace.gateway.routing.sticky import Sticky
from headrace.gateway.routing.variants import TakenOut
from headrace.gateway.settings.secret import Sources
from headrace.gateway.targets.auth import RefusedKey
from headrace.gateway.targets.health import State
from headrace.gateway.telemetry.telemetry import Telemetry
from headrace.gateway.ticking import tick
from headrace.gateway.workers import messages
from headrace.gateway.workers.figures import counted
from headrace.gateway.workers.from_parent import FromParent
from headrace.gateway.workers.link import Link
from headrace.gateway.workers.linked_counters import LinkedCounters
from headrace.gateway.workers.linked_ledger import LinkedLedger
from headrace.gateway.workers.reloading import Reloading
from headrace.http.event_loop import run_in_loop
from headrace.http.signals import Signals
from headrace.telemetry.logs import configure_logging

logger = logging.getLogger(__name__)

_START_S = 30.0
_SPANS_S = 2.0


class Worker:
    """The handler of the link to the parent."""

    def __init__(self) -> None:
        self.started: asyncio.Future[messages.Start] = asyncio.get_running_loop().create_future()
        self.telemetry = Telemetry()
        self.sticky = Sticky(on_change=self._stick)
        self.link: Link | None = None
        self.ledger: LinkedLedger | None = None
        self.reloading: Reloading | None = None
        # Needed from the first moment: it may have to end before it serves.
        self.heard = Signals(asyncio.Event(), asyncio.Event())

    def on_news(self, message: messages.Message) -> None:
        """See link.Handler."""
        if isinstance(message, messages.Start):
            if not self.started.done():
                self.started.set_result(message)
        elif isinstance(message, messages.Sticks):
            self.sticky.heard(message.model, message.key, message.target, time.monotonic())
        elif isinstance(message, messages.Forget):
            if self.reloading is not None:
                self.reloading.forget()
        elif isinstance(message, messages.Drain | messages.Cut):
            self.heard.stop.set()
            if isinstance(message, messages.Cut):
                self.heard.hurry.set()

    def on_question(self, message: messages.Message) -> messages.Message:
        """See link.Handler."""
        if isinstance(message, messages.AskFigures):
            return self.figures()
        if self.reloading is None:
            return messages.Done("the worker has not started yet")
        if isinstance(message, messages.Prepare):
            return messages.Done(self.reloading.prepare(message.text))
        if isinstance(message, messages.Take):
            return messages.Done(self.reloading.take())
        if isinstance(message, messages.AskExplain):
            return self.reloading.explain(message.model, message.body, message.caller)
        if isinstance(message, messages.TakeOut):
            return messages.Done(self.reloading.take_out(message.target, out=message.out))
        return messages.Done("not a question")

    def on_lost(self) -> None:
        """See link.Handler."""
        if not self.started.done():
            self.started.cancel()
        if not self.heard.stop.is_set():
            logger.error("the parent process has ended; this worker answers requests under way")
            self.heard.stop.set()

    def figures(self) -> messages.Figures:
        """The worker's state, and what it counted."""
        counters, histograms = counted(self.telemetry.series)
        lost = 0 if self.ledger is None else self.ledger.lost
        return messages.Figures(
            counters, histograms, self.telemetry.in_flight, lost, self.telemetry.standing()
        )

    def tell(self, message: messages.Message) -> None:
        """Send news to the parent."""
        if self.link is not None:
            self.link.tell(message)

    def alert(self, alert: Alert) -> None:
        """Report a budget's alert."""
        self.tell(messages.BudgetAlert(alert))

    def breaker(self, target: str, state: State, why: str) -> None:
        """Report a target's breaker that opened or closed."""
        self.tell(messages.Breaker(target, state, why))

    def refused(self, key: RefusedKey) -> None:
        """Report a key that a provider refused."""
        self.tell(messages.KeyRefused(key))

    def variant(self, variant: TakenOut) -> None:
        """Report an A/B variant that was taken out."""
        self.tell(messages.VariantOut(variant))

    def _stick(self, model: str, key: str | int, target: str) -> None:
        self.tell(messages.Sticks(model, key, target))


async def work(link_socket: socket.socket, listen_socket: socket.socket) -> None:
    """Serve until the parent ends it, or ends itself. Raises HeadraceError if it cannot start."""
    worker = Worker()
    link = worker.link = await Link.open(link_socket, worker)
    async with asyncio.timeout(_START_S):
        start = await worker.started
    path = Path(start.path)
    given = CliOverrides(start.host, start.port, start.workers)
    settings = settings_given(start.text, path, given)
    configure_logging(settings.log.level, settings.log.format, sys.stderr)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    in_redis = settings.access.redis is not None
    accounts = await accounts_of(
        settings.access,
        Sources(os.environ, path.parent),
        now_ns=time.time_ns,
        random_bytes=os.urandom,
        # Where the parent counts, it is the first to know.
        on_alert=worker.alert if in_redis else None,
        counters=None if in_redis else LinkedCounters(link),
        saves=in_redis,
    )
    link.tell(messages.ReservesAs(accounts.owner))
    worker.ledger = LinkedLedger(link)
    around = Surroundings(
        telemetry=worker.telemetry,
        takers=(worker.ledger.take,),
        everywhere=FromParent(link, worker.telemetry),
        sticky=worker.sticky,
        on_breaker=worker.breaker,
        on_refused=worker.refused,
        on_taken_out=worker.variant,
    )
    around = with_request_log(around, path, settings)
    current = Current(made(path, settings, accounts, around))
    current.gateway.take_over()
    current.gateway.start()
    worker.reloading = Reloading(path, given, accounts, current, around)
    ticking = asyncio.ensure_future(tick(accounts.tick, lambda: worker.tell(worker.figures())))
    await listen_until(
        worker.heard,
        current,
        listen_socket,
        settings.listen,
        lambda: worker.tell(messages.Serves()),
        current.make_ready,
    )
    ticking.cancel()
    await current.drain(DRAIN_S)
    current.gateway.close()
    if around.request_log is not None:
        around.request_log.close()
    worker.telemetry.close(_SPANS_S)
    await accounts.close()
    worker.tell(worker.figures())
    await link.flushed()
    link.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Return exit status 0 after a requested end, 1 if the worker cannot start."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--link-fd", type=int, required=True)
    parser.add_argument("--listen-fd", type=int, required=True)
    parsed = parser.parse_args(arguments)
    # The parent gets these signals too, and decides.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    link_socket = socket.socket(fileno=parsed.link_fd)
    listen_socket = socket.socket(fileno=parsed.listen_fd)
    try:
        run_in_loop(work(link_socket, listen_socket))
    except HeadraceError as error:
        print(f"a worker of the gateway could not start: {error}", file=sys.stderr)
        return 1
    except (TimeoutError, asyncio.CancelledError):
        print("a worker of the gateway received nothing from its parent", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
