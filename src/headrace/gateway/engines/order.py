"""The order of engines by what they have of a prompt and how loaded they are.

A weighted sum of scores, as in llm-d's scheduler, whose default is 3 for the prefix and 2 for the
queue (Red Hat OpenShift AI 3.4, "Configuring scheduler settings"); five waiting requests, or a KV
cache at 0.8, are full load there. A load guard goes before it, as in SGLang's router: where the
busiest has 64 requests more than the idlest and more than 1.5 times as many, the shortest queue
wins over any prefix.

What a prefix saves grows with its length: a share of a short prompt counts less than the same of a
long one. Requests that were sent since the last reading count as waiting, or a burst would go to
one engine whole before its queue is seen.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from headrace.gateway.engines.state import EngineState
from headrace.gateway.routing.prompt_blocks import BLOCK_BYTES, BYTES_PER_TOKEN
from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.routing.strategies import Scored
from headrace.gateway.settings.traffic import EngineSettings
from headrace.gateway.targets.target import Target

_FULL_QUEUE = 5.0
_FULL_KV_USE = 0.8
_IMBALANCE_RATIO = 1.5
# A prefix of so many tokens saves half of what one without end would.
_HALF_WORTH_TOKENS = 256


class Load(NamedTuple):
    """waiting: with what was sent since the reading. is_known: whether there is a reading."""

    waiting: float
    running: float
    kv_use: float
    is_known: bool

    @property
    def requests(self) -> float:
        """At the engine, as far as is known."""
        return self.waiting + self.running


class EngineOrder:
    """Of one model. by_prefix: whether it counts what engines have of a prompt."""

    def __init__(self, state: EngineState, settings: EngineSettings, *, by_prefix: bool) -> None:
        self._state = state
        self._settings = settings
        self._by_prefix = by_prefix

    def __call__(
        self, targets: Sequence[Target], ask: RoutingQuery, source: random.Random, now_s: float
    ) -> list[Scored]:
        """The best first; equals by requests at them, then by chance."""
        shuffled = list(targets)
        source.shuffle(shuffled)
        loads = self._loads(shuffled, now_s)
        requests = [one.requests for one in loads.values()]
        most, least = max(requests, default=0.0), min(requests, default=0.0)
        uneven = (
            most - least > self._settings.imbalance_requests and most > _IMBALANCE_RATIO * least
        )
        found = [self._scored(one, loads[one.name], ask, uneven) for one in shuffled]
        return sorted(found, key=lambda one: (one.score, loads[one.target.name].requests))

    def served(self, ask: RoutingQuery, target: Target) -> None:
        """It has the prompt now."""
        if self._by_prefix and ask.blocks:
            self._state.index.had(target.name, ask.blocks)

    def _scored(self, target: Target, load: Load, ask: RoutingQuery, uneven: bool) -> Scored:
        said = (
            f"{load.waiting:g} waiting, {load.running:g} running, KV cache {load.kv_use:.0%} used"
            if load.is_known
            else f"no fresh metrics, {target.health.in_flight} requests at it"
        )
        if uneven:
            return Scored(target, load.requests, f"load is uneven; {said}")
        settings = self._settings
        queue = min(1.0, load.waiting / _FULL_QUEUE)
        kv = min(1.0, load.kv_use / _FULL_KV_USE)
        score = settings.queue_weight * queue + settings.kv_weight * kv
        if self._by_prefix:
            matched = self._state.index.matched(target.name, ask.blocks)
            tokens = matched * BLOCK_BYTES // BYTES_PER_TOKEN
            share = matched / len(ask.blocks) if ask.blocks else 0.0
            score -= settings.prefix_weight * share * tokens / (tokens + _HALF_WORTH_TOKENS)
            said = f"about {tokens:,} tokens of the prompt there; {said}"
        return Scored(target, round(score, 6), said)

    def _loads(self, targets: Sequence[Target], now_s: float) -> dict[str, Load]:
        """Of an engine that tells nothing, those of the one with most: neither better than all nor
        out of the question."""
        found: dict[str, Load] = {}
        for one in targets:
            reading = self._state.fresh(one.provider.name, now_s, self._settings.stale_s)
            if reading is not None:
                unseen = max(0.0, one.health.in_flight - reading.running - reading.waiting)
                found[one.name] = Load(
                    reading.waiting + unseen, reading.running, reading.kv_use, True
                )
        known = list(found.values())
        for one in targets:
            if one.name not in found:
                found[one.name] = Load(
                    waiting=max((each.waiting for each in known), default=0.0),
                    running=max(
                        (each.running for each in known), default=float(one.health.in_flight)
                    ),
                    kv_use=max((each.kv_use for each in known), default=0.0),
                    is_known=False,
                )
        return found
