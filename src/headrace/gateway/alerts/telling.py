"""What happened that people should know at once, told in the log and to the webhook of the file.

Of several workers the parent tells, so that each thing is told once.
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

# While a disk is full lines are lost all the time; people need to hear of it now and then.
_LOST_AGAIN_S = 300.0
# A Redis at its limits is lost and back each second.
_COUNTERS_AGAIN_S = 60.0
# Each worker finds out by itself; the provider is asked again after as long.
_REFUSED_AGAIN_S = 290.0
_MOST_WHY_CHARS = 200

Data = dict[str, str | int | float | None]


class Telling:
    """wall_s: Unix time. new_id: makes a notice's id."""

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
        """Of a loss that nobody was told of yet."""
        self._counters_told_s = float("-inf")
        self._refused_told_s: dict[tuple[str, int], float] = {}

    def check(self, settings: AlertSettings | None) -> None:
        """Raises ConfigError where `reconfigure` would."""
        check_alerts(settings, self._sources)

    def reconfigure(self, settings: AlertSettings | None) -> None:
        """Others are told from now on; what waits for those before goes on for a while. Raises
        ConfigError."""
        self._refused_told_s.clear()  # keys may be others
        if settings == self._settings:
            return
        made = self._made(settings)
        before, self._webhook, self._settings = self._webhook, made, settings
        if before is not None:
            task = asyncio.ensure_future(before.close())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def budget(self, alert: Alert) -> None:
        """A budget went over a threshold."""
        text = budget_text(alert)
        logger.warning("%s", text)
        self._tell("budget.threshold", text, budget_data(alert))

    def breaker(self, target: str, state: State, why: str) -> None:
        """A target is left alone, or asked again."""
        is_open = state == "open"
        became = "failed too often and is left alone" if is_open else "is asked again"
        text = f"{target} {became}"
        logger.warning("%s", text)
        # Providers quote what was sent, so that a failure's words stay here; its kind is theirs.
        kind = why.partition(":")[0][:_MOST_WHY_CHARS]
        data: Data = {"target": target, "failure": kind or None}
        self._tell("breaker.open" if is_open else "breaker.closed", text, data)

    def refused(self, told: RefusedKey) -> None:
        """A provider refused a key; its words stay here, as a breaker's do."""
        at, now_s = (told.provider, told.key), self._wall_s()
        if now_s - self._refused_told_s.get(at, float("-inf")) < _REFUSED_AGAIN_S:
            return
        self._refused_told_s[at] = now_s
        status = f" {told.status}" if told.status else ""
        text = f"{told.provider} refuses key {told.key} of {told.keys}: {told.kind}{status}"
        logger.warning("%s", text)
        data: Data = {
            "provider": told.provider, "key": told.key, "keys": told.keys, "failure": told.kind,
            "status": told.status,
        }  # fmt: skip
        self._tell("key.refused", text, data)

    def variant(self, told: TakenOut) -> None:
        """A side of an A/B test was taken out, which is in the log by then."""
        data: Data = {
            "model": told.model,
            "variant": told.variant,
            "error_share": told.error_share,
            "first_error_share": told.first_error_share,
            "requests": told.over,
        }
        text = f"variant {told.variant} of model {told.model} failed too often and is taken out"
        self._tell("variant.taken_out", text, data)

    def counters(self, problem: str, lasted_s: float | None) -> None:
        """What limits and budgets are counted in is lost, or back after so long, which is in the
        log by then. One that comes and goes is told of once in a while; one that lasts is told of
        by `tick`."""
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
        """To be called about once a second."""
        problem, now_s = self._counters_problem, self._wall_s()
        if problem is None or now_s - self._counters_told_s < _COUNTERS_AGAIN_S:
            return
        self._counters_problem, self._counters_lost, self._counters_told_s = None, True, now_s
        text = f"limits and budgets cannot be counted in Redis: {problem}"
        self._tell("counters.lost", text, {"problem": problem})

    def lost(self, lines: int) -> None:
        """How many lines the ledger has lost since the start; to be told about once a second."""
        now_s = self._wall_s()
        if lines <= self._lost or now_s - self._lost_told_s < _LOST_AGAIN_S:
            return
        text = f"the ledger has lost {lines} lines, {lines - self._lost} of them now"
        logger.error("%s", text)
        self._tell("ledger.lost", text, {"lost": lines, "lost_now": lines - self._lost})
        self._lost, self._lost_told_s = lines, now_s

    async def close(self) -> None:
        """Tell what waits, for a moment."""
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
    """Raises ConfigError for what could not be told to anybody."""
    if settings is not None:
        from headrace.gateway.alerts.webhook import read_receiver

        read_receiver(read_secret(settings.url, sources, "alerts.url").reveal())
        if settings.secret is not None:
            read_secret(settings.secret, sources, "alerts.secret")
