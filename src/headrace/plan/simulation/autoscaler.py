"""How many replicas are wanted, decided now and then from what is seen."""

from __future__ import annotations

import math
import random
from collections import deque
from typing import NamedTuple

import numpy as np

from headrace.plan.simulation.pool import Pool, drawn_cold_start
from headrace.plan.simulation.settings import AutoscaleSettings

_FEWEST_TTFTS = 5
"""Of which a 95th percentile is taken; with fewer, the metric is not known."""


class Scaling(NamedTuple):
    """A decision that changed something: from so many replicas to so many."""

    at_s: float
    role: str
    before: int
    after: int


class Autoscaler:
    """An autoscaler of one pool."""

    def __init__(self, settings: AutoscaleSettings, pool: Pool, source: random.Random) -> None:
        self.decisions: list[Scaling] = []
        self._settings = settings
        self._pool = pool
        self._cold_start_s = drawn_cold_start(settings.cold_start_s, source)
        self._desired: deque[tuple[float, int]] = deque()
        self._ttfts: deque[tuple[float, float]] = deque()

    def note_ttft(self, at_s: float, ttft_s: float) -> None:
        """Of a request that ended."""
        if self._settings.by == "slo":
            self._ttfts.append((at_s, ttft_s))

    def decide(self, now_s: float) -> None:
        """Look, and add replicas at once or take them away when few were enough for long."""
        settings, pool = self._settings, self._pool
        current = len(pool.ready) + pool.starting
        desired = self._wanted(current, now_s)
        recent = self._desired
        recent.append((now_s, desired))
        while recent[0][0] < now_s - settings.down_after_s:
            recent.popleft()
        if desired > current:
            pool.add(desired - current, self._cold_start_s)
        elif current > (most := max(one for _, one in recent)):
            pool.drain(current - most, now_s)
            desired = most
        else:
            return
        self.decisions.append(Scaling(now_s, pool.role, current, desired))

    def _wanted(self, current: int, now_s: float) -> int:
        settings = self._settings
        metric = self._metric(now_s)
        wanted = current
        if metric is not None and abs(metric / settings.target - 1) > settings.tolerance:
            # Replicas that are still starting share the load soon, so they count.
            ready = max(1, len(self._pool.ready))
            wanted = math.ceil(ready * metric / settings.target)
            if metric > settings.target:
                wanted = max(wanted, current)
        return min(max(wanted, settings.least), settings.most)

    def _metric(self, now_s: float) -> float | None:
        pool, settings = self._pool, self._settings
        if settings.by == "queue":
            return pool.num_waiting / max(1, len(pool.ready))
        if settings.by == "kv":
            shares = [one.kv_share(now_s) for one in pool.ready]
            return sum(shares) / len(shares) if shares else None
        assert settings.ttft_s is not None, "settings see to it"
        while self._ttfts and self._ttfts[0][0] < now_s - settings.window_s:
            self._ttfts.popleft()
        if len(self._ttfts) < _FEWEST_TTFTS:
            return 0.0 if not pool.num_waiting else None
        values = [ttft for _, ttft in self._ttfts]
        return float(np.percentile(values, 95)) / settings.ttft_s
