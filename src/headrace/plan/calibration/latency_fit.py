"""The latency model of one model in one runtime, fitted to tests of the engine.

Each test is a sum over its steps of what LatencyModel.step has: steps, tokens and pairs of prompts,
decoding requests and their context. Coefficients are not below zero (nnls.py); errors count as
shares, and tests that were disturbed count less.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace.plan.calibration.measurements import EngineTest, MeasurementSet
from headrace.plan.calibration.nnls import robust_nnls
from headrace.plan.step.latency_model import LatencyModel

# A test that is off by more is taken for disturbed.
TOLERANCE = 0.1


class LatencyFit(NamedTuple):
    """A fitted latency model with its errors."""

    model: LatencyModel
    errors: tuple[float, ...]
    """Predicted / measured − 1 in seconds, of each row."""


class StepTerms(NamedTuple):
    """The terms in which a latency model is linear, summed over steps."""

    steps: float
    prefill_tokens: float
    prefill_pairs: float
    decode_requests: float
    decode_context_tokens: float


def terms_of(test: EngineTest, step_tokens: int) -> StepTerms:
    """Of a test: as measured.steps_of has it, but that every decode takes a step of its own.

    Requests that decode while prompts of others are computed share steps; those are few.
    """
    tokens = test.batch * test.prompt
    start = test.depth
    pairs = test.batch * (test.prompt * start + test.prompt * (test.prompt + 1) // 2)
    first = test.depth + max(1, test.prompt)
    context = test.new * first + test.new * (test.new - 1) // 2
    return StepTerms(
        steps=-(-tokens // step_tokens) + test.new,
        prefill_tokens=tokens,
        prefill_pairs=pairs,
        decode_requests=test.batch * test.new,
        decode_context_tokens=test.batch * context,
    )


def fit_latency(measured: MeasurementSet) -> LatencyFit | None:
    """Of one model as measured; None where there are fewer tests than coefficients."""
    if len(measured.rows) < len(StepTerms._fields):
        return None
    matrix = np.array([terms_of(row.test, measured.step_tokens) for row in measured.rows], float)
    seconds = np.array([row.seconds for row in measured.rows])
    found = robust_nnls(matrix, seconds, tolerance=TOLERANCE)
    model = latency_model(
        found.tolist(),
        source=f"headrace bench engine, {measured.name}, {measured.measured_at[:10]}",
    )
    return LatencyFit(model, tuple(float(one) for one in matrix @ found / seconds - 1))


def latency_model(found: list[float], *, source: str, request_s: float = 0.0) -> LatencyModel:
    """Of coefficients in the order of StepTerms."""
    step, token, pair, request, context = found
    return LatencyModel(
        step_s=step,
        prefill_token_s=token,
        prefill_pair_s=pair,
        decode_request_s=request,
        decode_context_token_s=context,
        request_s=request_s,
        source=source,
    )
