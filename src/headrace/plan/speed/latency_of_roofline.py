"""A LatencyModel of a machine nobody measured: the line that comes closest to its roofline.

A roofline takes the longer of reading and computing and is no line; `RooflineLatency` says by how
much the line misses it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.plan.calibration.nnls import nnls
from headrace.plan.speed.speed import SpeedModel
from headrace.plan.step.latency_model import LatencyModel
from headrace.plan.validation import not_below

_PARTS = (
    "step_s",
    "prefill_token_s",
    "prefill_pair_s",
    "decode_request_s",
    "decode_context_token_s",
)


@dataclass(frozen=True, kw_only=True)
class RooflineLatency:
    """A latency model fitted to the roofline."""

    latency: LatencyModel
    mean_error: float
    worst_error: float
    """With `mean_error`: of the line against the roofline's times, as shares of them."""
    points: int


def latency_of_roofline(
    model: SpeedModel, *, most_batch: int, most_context_tokens: int
) -> RooflineLatency:
    """Fit to a replica with work: decode steps from a 16th of `most_batch`, contexts from an 8th of
    `most_context_tokens`, chunks of prompts from a quarter of a step's tokens.

    Least squares of relative errors, no part below 0. What is smaller takes less than the line
    says: short chunks are computed while weights are read, small batches need fewer experts.
    """
    not_below("most_batch", most_batch, 1, "a step has at least one request")
    not_below("most_context_tokens", most_context_tokens, 1, "a request has a token")
    rows: list[tuple[float, ...]] = []
    times: list[float] = []
    contexts = _powers(max(1, most_context_tokens // 8), most_context_tokens)
    for batch in _powers(max(1, most_batch // 16), most_batch):
        for context in contexts:
            rows.append((1, 0, 0, batch, batch * (context + 1)))
            times.append(model.decode_step(batch, context).seconds)
    chunk = min(model.setup.prefill_chunk_tokens, most_context_tokens)
    for count in _powers(max(1, chunk // 4), chunk):
        for start in {0, most_context_tokens // 2, most_context_tokens - count}:
            if start < 0:
                continue
            rows.append((1, count, count * start + count * (count + 1) / 2, 0, 0))
            times.append(model.prefill(start + count, start).seconds)
    matrix, seconds = np.array(rows, dtype=np.float64), np.array(times)
    parts = nnls(matrix / seconds[:, None], np.ones(len(seconds)))
    errors = np.abs(matrix @ parts / seconds - 1)
    setup = model.setup
    mean, worst = float(errors.mean()), float(errors.max())
    latency = LatencyModel(
        **dict(zip(_PARTS, parts.tolist(), strict=True)),
        source=f"{setup.efficiencies.basis}: roofline of {setup.shape.name} on "
        f"{setup.parallelism.devices} x {setup.device.name}; the line misses it by {mean:.0%} on "
        f"average, {worst:.0%} at most",
    )
    return RooflineLatency(latency=latency, mean_error=mean, worst_error=worst, points=len(times))


def _powers(least: int, most: int) -> list[int]:
    """Powers of two times `least` up to `most`, and `most`."""
    found = [least]
    while found[-1] * 2 < most:
        found.append(found[-1] * 2)
    return found if found[-1] == most else [*found, most]
