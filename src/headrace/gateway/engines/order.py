"""Orders engines by the part of a prompt that they have cached and by their load.

A weighted sum of scores, as in llm-d's scheduler, whose default is 3 for the prefix and 2 for the
queue (Red Hat OpenShift AI 3.4, "Configuring scheduler settings"); five waiting requests, or a KV
cache at 0.8, are full load there. A load guard goes before it, as in SGLang's router: where the
cache at 0.8, are full load there. A load guard comes first, as in SGLang's router: if the busiest
has 64 requests more than the idlest and more than 1.5 times as many, the shortest queue wins over
any prefix.

The saving of a prefix grows with its length: a share of a short prompt counts less than the same of
a long one. Requests sent since the last reading count as waiting, so that a burst does not go to
one engine before its queue is seen.
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
# A prefix of so many tokens saves half of what an endless one would.
_HALF_WORTH_TOKENS = 256


class Load(NamedTuple):
    """The load of an engine."""

    waiting: float
    """Includes requests sent since the reading."""
    running: float
    kv_use: float
    is_known: bool
    """Whether there is a fresh reading."""

    @property
    def requests(self) -> float:
        """Requests at the engine, as far as is known."""
        return self.waiting + self.running


class EngineOrder:
    """The order of one model's engines. `by_prefix` says whether cached prefixes count."""

    def __init__(self, state: EngineState, settings: EngineSettings, *, by_prefix: bool) -> None:
        self._state = state
        self._settings = settings
        self._by_prefix = by_prefix

    def __call__(
        self, targets: Sequence[Target], ask: RoutingQuery, source: random.Random, now_s: float
    ) -> list[Scored]:
        """The best first; ties by requests at them, then at random."""
        shuffled = list(targets)
        source.shuffle(shuffled)
        loads = self._loads(shuffled, now_s)
        requests = [load.requests for load in loads.values()]
        most, least = max(requests, default=0.0), min(requests, default=0.0)
        uneven = (
            most - least > self._settings.imbalance_requests and most > _IMBALANCE_RATIO * least
        )
        found = [self._scored(target, loads[target.name], ask, uneven) for target in shuffled]
        return sorted(found, key=lambda entry: (entry.score, loads[entry.target.name].requests))

    def served(self, ask: RoutingQuery, target: Target) -> None:
        """Record that the target has the prompt now."""
        if self._by_prefix and ask.blocks:
            self._state.index.had(target.name, ask.blocks)

    def _scored(self, target: Target, load: Load, ask: RoutingQuery, uneven: bool) -> Scored:
        reason = (
            f"{load.waiting:g} waiting, {load.running:g} running, KV cache {load.kv_use:.0%} used"
            if load.is_known
            else f"no fresh metrics, serving {target.health.in_flight} requests"
        )
        if uneven:
            return Scored(target, load.requests, f"load is uneven; {reason}")
        settings = self._settings
        queue = min(1.0, load.waiting / _FULL_QUEUE)
        kv = min(1.0, load.kv_use / _FULL_KV_USE)
        score = settings.queue_weight * queue + settings.kv_weight * kv
        if self._by_prefix:
            matched = self._state.index.matched(target.name, ask.blocks)
            tokens = matched * BLOCK_BYTES // BYTES_PER_TOKEN
            share = matched / len(ask.blocks) if ask.blocks else 0.0
            score -= settings.prefix_weight * share * tokens / (tokens + _HALF_WORTH_TOKENS)
            reason = f"about {tokens:,} tokens of the prompt there; {reason}"
        return Scored(target, round(score, 6), reason)

    def _loads(self, targets: Sequence[Target], now_s: float) -> dict[str, Load]:
        """Loads by name. An engine without a fresh reading gets the highest of the others, so that
        it is neither preferred nor excluded."""
        loads: dict[str, Load] = {}
        for target in targets:
            reading = self._state.fresh(target.provider.name, now_s, self._settings.stale_s)
            if reading is not None:
                unseen = max(0.0, target.health.in_flight - reading.running - reading.waiting)
                loads[target.name] = Load(
                    reading.waiting + unseen, reading.running, reading.kv_use, True
                )
        known = list(loads.values())
        for target in targets:
            if target.name not in loads:
                loads[target.name] = Load(
                    waiting=max((load.waiting for load in known), default=0.0),
                    running=max(
                        (load.running for load in known), default=float(target.health.in_flight)
                    ),
                    kv_use=max((load.kv_use for load in known), default=0.0),
                    is_known=False,
                )
        return loads
