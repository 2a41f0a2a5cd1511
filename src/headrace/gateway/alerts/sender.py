"""Sends alerts to the log and to the configured webhook.

With several workers the parent sends them, so that each alert is sent once.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from headrace.gateway.accounts.alert import Alert
from headrace.gateway.alerts.notice import Event, Notice, budget_data, budget_text
from headrace.gateway.routing.variants import TakenOut
from headrace.gateway.settings.alerts import AlertSettings
from headrace.gateway.settings.secret import Sources, read_secret
from headrace.gateway.targets.auth import RefusedKey
from headrace.gateway.targets.health import State

if TYPE_CHECKING:
    from headrace.gateway.alerts.webhook import Webhook

logger = logging.getLogger(__name__)

# While a disk is full lines are lost continually; a reminder now and then is enough.
_LOST_AGAIN_S = 300.0
# A Redis at its limits may come and go every second.
_COUNTERS_AGAIN_S = 60.0
# Each worker finds out by itself; the key is tried again after about this time.
_REFUSED_AGAIN_S = 290.0
_MOST_WHY_CHARS = 200

Data = dict[str, str | int | float | None]


class AlertSender:
    """A sender of alerts. `wall_s` is Unix time; `new_id` makes the id of an alert."""

    def __init__(
        self,
        settings: AlertSettings | None,
        sources: Sources,
        *,
        wall_s: Callable[[], float],
        source: random.Random,
        new_id: Callable[[], str],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Raises ConfigError."""
        self._sources = sources
        self._wall_s = wall_s
        self._source = source
        self._new_id = new_id
        self._sleep = sleep
        self._settings = settings
        self._webhook = self._made(settings)
        self._ending: set[asyncio.Future[None]] = set()
        self._lost = 0
        self._lost_told_s = float("-inf")
        self._counters_lost = False
        self._counters_problem: str | None = None
        """The problem of an outage that is not yet reported."""
        self._counters_told_s = float("-inf")
        self._refused_told_s: dict[tuple[str, int], float] = {}

    def check(self, settings: AlertSettings | None) -> None:
        """Raise ConfigError if `reconfigure` would."""
        check_alerts(settings, self._sources)

    def reconfigure(self, settings: AlertSettings | None) -> None:
        """Use other settings from now on; pending alerts still go to the previous receiver for a
        while. Raises ConfigError."""
        self._refused_told_s.clear()  # the keys may have changed
        if settings == self._settings:
            return
        made = self._made(settings)
        before, self._webhook, self._settings = self._webhook, made, settings
        if before is not None:
            task = asyncio.ensure_future(before.close())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def budget(self, alert: Alert) -> None:
        """Report a budget that crossed a threshold."""
        text = budget_text(alert)
        logger.warning("%s", text)
        self._tell("budget.threshold", text, budget_data(alert))

    def breaker(self, target: str, state: State, why: str) -> None:
        """Report a target whose breaker opened or closed."""
        is_open = state == "open"
        became = "failed too often and is paused" if is_open else "is used again"
        text = f"{target} {became}"
        logger.warning("%s", text)
        # Providers quote requests, so only the kind of failure is sent, not the message.
        kind = why.partition(":")[0][:_MOST_WHY_CHARS]
        data: Data = {"target": target, "failure": kind or None}
        self._tell("breaker.open" if is_open else "breaker.closed", text, data)

    def refused(self, key: RefusedKey) -> None:
        """Report a refused key, without the provider's message."""
        at, now_s = (key.provider, key.key), self._wall_s()
        if now_s - self._refused_told_s.get(at, float("-inf")) < _REFUSED_AGAIN_S:
            return
        self._refused_told_s[at] = now_s
        status = f" {key.status}" if key.status else ""
        text = f"{key.provider} refuses key {key.key} of {key.keys}: {key.kind}{status}"
        logger.warning("%s", text)
        data: Data = {
            "provider": key.provider, "key": key.key, "keys": key.keys, "failure": key.kind,
            "status": key.status,
        }  # fmt: skip
        self._tell("key.refused", text, data)

    def variant(self, variant: TakenOut) -> None:
        """Report an A/B variant that was taken out, which is already logged."""
        data: Data = {
            "model": variant.model,
            "variant": variant.variant,
            "error_share": variant.error_share,
            "first_error_share": variant.first_error_share,
            "requests": variant.over,
        }
        text = (
            f"variant {variant.variant} of model {variant.model} failed too often and is taken out"
        )
        self._tell("variant.taken_out", text, data)

    def counters(self, problem: str, lasted_s: float | None) -> None:
        """Report that the store of limits and budgets is lost, or back after `lasted_s`, which is
        already logged. One that comes and goes is reported once in a while; a lasting outage is
        reported by `tick`."""
        if lasted_s is None:
            self._counters_problem = problem
            self.tick()
            return
        self._counters_problem = None
        if self._counters_lost:
            self._counters_lost = False
            text = f"limits and budgets are counted in Redis again, after {lasted_s:.1f} s"
            self._tell("counters.back", text, {"lasted_s": round(lasted_s, 3)})

    def tick(self) -> None:
        """Report a pending outage; call about once a second."""
        problem, now_s = self._counters_problem, self._wall_s()
        if problem is None or now_s - self._counters_told_s < _COUNTERS_AGAIN_S:
            return
        self._counters_problem, self._counters_lost, self._counters_told_s = None, True, now_s
        text = f"limits and budgets cannot be counted in Redis: {problem}"
        self._tell("counters.lost", text, {"problem": problem})

    def lost(self, lines: int) -> None:
        """Report the number of ledger lines lost since the start; call about once a second."""
        now_s = self._wall_s()
        if lines <= self._lost or now_s - self._lost_told_s < _LOST_AGAIN_S:
            return
        text = f"the ledger has lost {lines} lines, {lines - self._lost} of them now"
        logger.error("%s", text)
        self._tell("ledger.lost", text, {"lost": lines, "lost_now": lines - self._lost})
        self._lost, self._lost_told_s = lines, now_s

    async def close(self) -> None:
        """Send pending alerts, for a moment."""
        if self._webhook is not None:
            await self._webhook.close()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _tell(self, event: Event, text: str, data: Data) -> None:
        if self._webhook is not None:
            created_s = int(self._wall_s())
            self._webhook.tell(
                Notice(id=self._new_id(), event=event, created_s=created_s, text=text, data=data)
            )

    def _made(self, settings: AlertSettings | None) -> Webhook | None:
        if settings is None:
            return None
        from headrace.gateway.alerts.webhook import Webhook, read_receiver

        url = read_secret(settings.url, self._sources, "alerts.url")
        receiver = read_receiver(url.reveal())
        secret = settings.secret
        return Webhook(
            receiver,
            None if secret is None else read_secret(secret, self._sources, "alerts.secret"),
            settings.format,
            wall_s=self._wall_s,
            source=self._source,
            sleep=self._sleep,
        )


def check_alerts(settings: AlertSettings | None, sources: Sources) -> None:
    """Raise ConfigError if alerts could not be sent with these settings."""
    if settings is not None:
        from headrace.gateway.alerts.webhook import read_receiver

        read_receiver(read_secret(settings.url, sources, "alerts.url").reveal())
        if settings.secret is not None:
            read_secret(settings.secret, sources, "alerts.secret")
