"""Services that are quick to simulate."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headrace.plan.simulation.arrival import Arrival
from headrace.plan.simulation.settings import EngineSettings, SimulationSettings
from headrace.plan.step.latency_model import LatencyModel

LATENCY = LatencyModel(
    step_s=0.006,
    prefill_token_s=4e-5,
    prefill_pair_s=1e-9,
    decode_request_s=2e-5,
    decode_context_token_s=5e-8,
)
ENGINE = EngineSettings(latency=LATENCY, num_blocks=2000)


def engine(**changed: Any) -> EngineSettings:
    return replace(ENGINE, **changed)


def service(engine: EngineSettings = ENGINE, **changed: Any) -> SimulationSettings:
    return SimulationSettings(engine=engine, **changed)


def poisson(
    rate: float, count: int, prompts: Sequence[int], outputs: Sequence[int], seed: int = 0
) -> list[Arrival]:
    """Lengths are drawn of those given."""
    source = random.Random(seed)
    found, at_s = [], 0.0
    for _ in range(count):
        at_s += source.expovariate(rate)
        found.append(Arrival(at_s, source.choice(prompts), source.choice(outputs)))
    return found
