"""The time of a step from rates that were measured, in place of a data sheet's peaks.

    seconds = join(layers' bytes / bandwidth, layers' operations / operations per second)
            + join(head's bytes / bandwidth, head's operations / operations per second)
            + join(K and V / their bandwidth, attention's operations / theirs)
            + product values, logits, layers and the step itself, each with its own seconds
    join(x, y) = (x^overlap + y^overlap)^(1/overlap)

With `overlap` 1 a product reads and multiplies one after the other, with more it does both at once,
and without end the slower alone counts, which is the roofline. Processors lie between: around the
batch where both take as long neither is hidden, and a fit with the roofline's corner is wrong there
by up to the square root of two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from headrace.plan.step.roofline import StepTime
from headrace.plan.step.step import StepWork
from headrace.plan.validation import above_zero, not_below

SCORE_OPERATIONS = 32
"""What maximum, exponential and sum of a score cost beside its products, in operations of those.

An exponential is a polynomial of degree 6 between two roundings. Without it heads of few
dimensions, which have as many scores, would seem to multiply more slowly.
"""


@dataclass(frozen=True, kw_only=True)
class StepRates:
    """The rates of one kind of weights on one machine."""

    bandwidth_bytes_per_s: float
    operations_per_s: float
    overlap: float
    """With `bandwidth_bytes_per_s` and `operations_per_s`: of products with weights."""
    kv_bytes_per_s: float
    attention_operations_per_s: float
    """With `kv_bytes_per_s`: of attention."""
    value_s: float
    logit_s: float
    layer_s: float
    """With `value_s` and `logit_s`: seconds of each product value, logit and layer of a step (see
    StepWork)."""
    step_s: float
    """Time of each step, whatever it computes."""

    def __post_init__(self) -> None:
        remedy = "the calibration was edited or is of another version: run it again"
        for name in (
            "bandwidth_bytes_per_s", "operations_per_s", "kv_bytes_per_s",
            "attention_operations_per_s",
        ):  # fmt: skip
            above_zero(name, getattr(self, name), remedy)
        for name in ("value_s", "logit_s", "layer_s", "step_s"):
            not_below(name, getattr(self, name), 0.0, remedy)
        not_below("overlap", self.overlap, 1.0, remedy)

    def time(self, work: StepWork, communication_s: float = 0.0, devices: int = 1) -> StepTime:
        """The time of a step of `work`, divided evenly over `devices`."""
        read = (work.weight_bytes - work.head_bytes) / self.bandwidth_bytes_per_s / devices
        multiply = (work.weight_operations - work.head_operations) / self.operations_per_s / devices
        head_read = work.head_bytes / self.bandwidth_bytes_per_s / devices
        head_multiply = work.head_operations / self.operations_per_s / devices
        kept = (work.kv_bytes + work.state_bytes) / self.kv_bytes_per_s / devices
        attend = attention_operations(work) / self.attention_operations_per_s / devices
        values = (work.product_values * self.value_s + work.logits * self.logit_s) / devices
        return StepTime(
            bandwidth_s=read + head_read + kept,
            compute_s=multiply + head_multiply + attend + values,
            communication_s=communication_s,
            overhead_s=work.layers * self.layer_s + self.step_s,
            overlapped_s=self._join(read, multiply)
            + self._join(head_read, head_multiply)
            + self._join(kept, attend)
            + values,
        )

    def slowed(self, factor: float) -> StepRates:
        """The same with every part taking `factor` times as long."""
        return StepRates(
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s / factor,
            operations_per_s=self.operations_per_s / factor,
            overlap=self.overlap,
            kv_bytes_per_s=self.kv_bytes_per_s / factor,
            attention_operations_per_s=self.attention_operations_per_s / factor,
            value_s=self.value_s * factor,
            logit_s=self.logit_s * factor,
            layer_s=self.layer_s * factor,
            step_s=self.step_s * factor,
        )

    def _join(self, one: float, other: float) -> float:
        large, small = max(one, other), min(one, other)
        if small == 0 or math.isinf(self.overlap):
            return large
        return float(large * (1 + (small / large) ** self.overlap) ** (1 / self.overlap))


def attention_operations(work: StepWork) -> float:
    """Of attention and states, with what scores cost beside their products."""
    return work.attention_operations + work.state_operations + SCORE_OPERATIONS * work.scores
