"""Measurements as they would be of a machine whose rates are known, with seeded noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headrace.catalog import Catalog
from headrace.plan.calibration.measurements import (
    EngineTest,
    MachineId,
    MeasurementSet,
    Row,
    steps_of,
)
from headrace.plan.model.model_shape import shape_of_catalog
from headrace.plan.step.step import StepCounter, Storage
from headrace.plan.step.step_rates import StepRates
from headrace.telemetry.machine import this_machine

CATALOG = Catalog.load()
SMALL, LARGE = "qwen3-0.6b", "llama-3.2-1b"
STEP_TOKENS = 512
BYTES = {"BF16": 2.0, "Q8_0": 1.0625, "Q4_K": 0.6}
BF16 = StepRates(
    bandwidth_bytes_per_s=75e9,
    operations_per_s=900e9,
    overlap=1.8,
    kv_bytes_per_s=42e9,
    attention_operations_per_s=370e9,
    value_s=8e-11,
    logit_s=1e-9,
    layer_s=1.8e-5,
    step_s=3e-4,
)
TRUE = {
    "BF16": BF16,
    "Q8_0": replace(BF16, bandwidth_bytes_per_s=80e9, operations_per_s=1280e9, overlap=2.0),
    "Q4_K": replace(BF16, bandwidth_bytes_per_s=55e9, operations_per_s=1230e9, overlap=2.4),
}
TESTS = tuple(
    EngineTest(*each)
    for each in (
        (32, 0, 1, 0), (128, 0, 1, 0), (512, 0, 1, 0), (2048, 0, 1, 0), (8192, 0, 1, 0),
        (0, 32, 1, 0), (0, 32, 2, 0), (0, 32, 4, 0), (0, 32, 8, 0), (0, 32, 16, 0), (0, 32, 32, 0),
        (0, 32, 1, 2048), (0, 32, 8, 2048), (0, 32, 32, 512), (0, 32, 1, 8192), (0, 32, 2, 8192),
        (128, 64, 8, 0),
    )
)  # fmt: skip


def measured(
    model: str = SMALL,
    kind: str = "Q8_0",
    *,
    noise: float = 0.0,
    seed: int = 0,
    tests: tuple[EngineTest, ...] = TESTS,
) -> MeasurementSet:
    """Of this very machine, as if its rates were TRUE. noise: deviation of the logarithm."""
    shape = shape_of_catalog(CATALOG.models[model])
    counter = StepCounter(shape, Storage(bytes_per_weight=BYTES[kind]))
    draw = np.random.default_rng([seed, len(model), len(kind)])
    rows = []
    for test in tests:
        steps = steps_of(counter, test, STEP_TOKENS)
        seconds = sum(one.count * TRUE[kind].time(one.work).seconds for one in steps)
        rate = float(test.tokens / seconds * np.exp(draw.normal(0, noise)))
        rows.append(
            Row(
                prompt=test.prompt, new=test.new, batch=test.batch, depth=test.depth,
                tokens_per_s=rate, least_tokens_per_s=rate, most_tokens_per_s=rate, repeats=1,
                steps=steps,
            )
        )  # fmt: skip
    return MeasurementSet(
        model=shape.name,
        kind=kind,
        parameters=shape.parameters.total,
        weight_bytes=round(shape.parameters.total * BYTES[kind]),
        machine=MachineId(*this_machine()),
        runtime="headrace",
        version="0.1.0",
        cpu_level="avx2",
        threads=2,
        kv_type="bf16",
        step_tokens=STEP_TOKENS,
        measured_at="2026-11-22T08:00:00+00:00",
        rows=tuple(rows),
    )


def of_all_kinds(model: str, *, noise: float = 0.0, seed: int = 0) -> list[MeasurementSet]:
    return [measured(model, kind, noise=noise, seed=seed) for kind in TRUE]
