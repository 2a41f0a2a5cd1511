"""A line now and then that says what the engine does: while it does anything, and once after.

Rates are of the time since the line before, from the differences of the engine's totals. After a
restart the totals begin anew; what is there then was done since.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headrace.engine.messages import EngineInfo, Stats
    from headrace.server.state import ServerState

logger = logging.getLogger("headrace.status")


class Totals(NamedTuple):
    """The engine's work since its start."""

    steps: int
    prompt_tokens: int
    generation_tokens: int
    queries_tokens: int
    hits_tokens: int
    draft_tokens: int
    accepted_tokens: int
    moved_bytes: int
    busy_s: float

    @classmethod
    def of(cls, stats: Stats) -> Totals:
        """Those of a report."""
        return cls(
            stats.steps,
            stats.prompt_tokens,
            stats.generation_tokens,
            stats.prefix_queries_tokens,
            stats.prefix_hits_tokens,
            stats.spec_draft_tokens,
            stats.spec_accepted_tokens,
            stats.moved_bytes,
            stats.busy_s,
        )

    def since(self, before: Totals) -> Totals:
        """What was done after `before`."""
        # A new engine may have made more steps than the one before it, of fewer tokens.
        if any(now < then for now, then in zip(self, before, strict=True)):
            return self
        *counts, busy_s = self
        *counts_before, busy_before_s = before
        done = [int(now - then) for now, then in zip(counts, counts_before, strict=True)]
        return Totals._make([*done, busy_s - busy_before_s])


class StatusLine:
    """A maker of the lines, called at intervals of whatever length. clock: seconds."""

    def __init__(self, clock: Callable[[], float], stats: Stats) -> None:
        self._clock = clock
        self._shown_s = clock()
        self._totals = Totals.of(stats)
        self._was_busy = False

    def next(self, stats: Stats, info: EngineInfo, queued: int) -> str | None:
        """The line for now, or None where nothing happened since the line before said so.

        queued: requests accepted that the engine has not started.
        """
        now_s = self._clock()
        totals = Totals.of(stats)
        done, passed_s = totals.since(self._totals), now_s - self._shown_s
        self._shown_s, self._totals = now_s, totals
        waiting = queued + stats.num_preempted
        busy = bool(done.steps or stats.num_running or waiting)
        shows, self._was_busy = busy or self._was_busy, busy
        return _line(stats, info, waiting, done, passed_s) if shows and passed_s > 0 else None


def _line(stats: Stats, info: EngineInfo, waiting: int, done: Totals, passed_s: float) -> str:
    parts = [
        f"running {stats.num_running}",
        f"waiting {waiting}",
        f"KV {100 * stats.blocks_owned / stats.blocks_total if stats.blocks_total else 0.0:.1f} %",
        f"prompt {done.prompt_tokens / passed_s:.1f} tok/s",
        f"generation {done.generation_tokens / passed_s:.1f} tok/s",
    ]
    if done.queries_tokens:
        parts.append(f"prefix hits {100 * done.hits_tokens / done.queries_tokens:.1f} %")
    if done.draft_tokens:
        accepted = 100 * done.accepted_tokens / done.draft_tokens
        parts.append(f"drafts accepted {accepted:.1f} % of {done.draft_tokens}")
    if info.read_limit_bytes_per_s and done.busy_s > 0:
        mbu = done.moved_bytes / done.busy_s / info.read_limit_bytes_per_s
        parts.append(f"MBU {100 * mbu:.0f} %")
    return ", ".join(parts)


async def tell_status(
    state: ServerState, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Log lines at the configured interval until cancelled; returns at once where that is 0."""
    every_s = state.config.status_interval
    if every_s <= 0:
        return
    engine = state.serving().model.engine
    line = StatusLine(state.clock, engine.stats)
    while True:
        await sleep(every_s)
        text = line.next(engine.stats, engine.info, state.admission.num_queued)
        if text is not None:
            logger.info("%s", text)
