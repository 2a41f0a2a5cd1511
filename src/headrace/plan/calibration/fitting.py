"""Rates of a machine from measured tests: those of each kind of weights, and those they share.

A damped least squares (Levenberg, Marquardt) over the logarithms of the rates, which keeps them
above zero, on the logarithm of predicted over measured seconds, so that every test counts by its
relative error. A test that is off by more than a tenth counts less (Huber). What the tests at hand
cannot tell apart is held near a guess: one model alone cannot say whether a layer's fixed time or
the bandwidth of its weights is what it waits for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.errors import ConfigError
from headrace.plan.calibration.measurements import MeasurementSet, Row
from headrace.plan.step.step_rates import StepRates, attention_operations

Array = npt.NDArray[np.float64]

# Of a measurement that nothing disturbs; by it measurements are weighed against guesses.
_NOISE = 0.05
_HUBER = 2.0
_ITERATIONS = 80
_STEPS_LEFT_OUT = 4
# A step of all logarithms that no longer matters.
_ENOUGH = 1e-5
_SHARED = (
    "kv_bytes_per_s", "attention_operations_per_s", "value_s", "logit_s", "layer_s", "step_s",
)  # fmt: skip
_OF_KIND = ("bandwidth_bytes_per_s", "operations_per_s", "overlap")
# How far from its guess a rate may well be, as a natural logarithm: 0.7 is twice or half.
_SPREADS = {
    "kv_bytes_per_s": 1.0, "attention_operations_per_s": 1.0, "value_s": 0.7, "logit_s": 1.0,
    "layer_s": 0.7, "step_s": 0.7, "bandwidth_bytes_per_s": 1.5, "operations_per_s": 1.5,
    "overlap": 0.5,
}  # fmt: skip
# A value is written and read once as 32 bits; ten operations a layer of a microsecond each; a step
# of an interpreter as many again; a logit is looked at a few times. They decide only what no test
# tells.
_VALUE_BYTES = 8.0
_LAYER_S = 1e-5
_STEP_S = 2e-4
_LOGIT_S = 1e-9


@dataclass(frozen=True)
class Fit:
    """The result of a fit."""

    rates: dict[str, StepRates]
    """Rates by kind of weights."""
    seconds: tuple[float, ...]
    """Predicted for each row, in order."""


@dataclass(frozen=True)
class Observed:
    """One row with the kind of weights it is of. group: which model in which kind."""

    kind: str
    row: Row
    group: str


def observed(sets: Iterable[MeasurementSet]) -> tuple[Observed, ...]:
    """Every row of the sets."""
    return tuple(Observed(one.kind, row, one.name) for one in sets for row in one.rows)


def predict(rates: Mapping[str, StepRates], rows: Sequence[Observed]) -> tuple[float, ...]:
    """Seconds of each row; raises ConfigError for a kind of weights that `rates` lacks."""
    missing = sorted({one.kind for one in rows} - set(rates))
    if missing:
        raise ConfigError(
            f"there are no measurements of {', '.join(missing)} weights, only of "
            f"{', '.join(rates)}: measure a model of that kind (`headrace plan calibrate "
            "--measure MODEL`)"
        )
    return tuple(
        sum(steps.count * rates[one.kind].time(steps.work).seconds for steps in one.row.steps)
        for one in rows
    )


def fit(rows: Sequence[Observed]) -> Fit:
    """Rates that give the rows' seconds best; raises ConfigError for no rows."""
    if not rows:
        raise ConfigError("there is nothing to fit: measure a test first")
    problem = _Problem(rows)
    theta = _least_squares(problem, problem.guess)
    return Fit(problem.rates(theta), tuple(float(one) for one in problem.seconds(theta)))


def seconds_left_out(rows: Sequence[Observed]) -> tuple[float | None, ...]:
    """Of each row what a fit to all others predicts; None for the only one of its kind.

    Such a fit lies beside the fit to all, so that a few steps with the slopes there reach it.
    """
    problem = _Problem(rows)
    whole = _least_squares(problem, problem.guess)
    slopes = _jacobian(problem, whole, problem.residuals(whole))
    found: list[float | None] = []
    for index, one in enumerate(rows):
        if sum(other.kind == one.kind for other in rows) == 1:
            found.append(None)
            continue
        theta = whole
        for _ in range(_STEPS_LEFT_OUT):
            residuals = problem.residuals(theta)
            weight = problem.weights(residuals)
            weight[index] = 0.0
            weighted = slopes * weight[:, None]
            step = np.linalg.solve(weighted.T @ weighted, -weighted.T @ (residuals * weight))
            theta = theta + np.clip(step, -1.0, 1.0)
        found.append(float(problem.seconds(theta)[index]))
    return tuple(found)


class _Problem:
    """Rows as arrays, rates as one vector of logarithms: the shared, then those of each kind."""

    def __init__(self, rows: Sequence[Observed]) -> None:
        self.kinds = tuple(dict.fromkeys(one.kind for one in rows))
        self.measured = np.array([one.row.seconds for one in rows])
        steps = [(index, one) for index, whole in enumerate(rows) for one in whole.row.steps]
        self._row = np.array([index for index, _ in steps])
        self._kind = np.array([self.kinds.index(rows[index].kind) for index, _ in steps])
        self._count = np.array([float(one.count) for _, one in steps])
        works = [one.work for _, one in steps]

        def column(values: Iterable[float]) -> Array:
            return np.array(list(values), dtype=np.float64)

        self._layer_bytes = column(one.weight_bytes - one.head_bytes for one in works)
        self._layer_operations = column(
            one.weight_operations - one.head_operations for one in works
        )
        self._head_bytes = column(one.head_bytes for one in works)
        self._head_operations = column(one.head_operations for one in works)
        self._kept = column(one.kv_bytes + one.state_bytes for one in works)
        self._attend = column(attention_operations(one) for one in works)
        self._values = column(one.product_values for one in works)
        self._logits = column(one.logits for one in works)
        self._layers = column(one.layers for one in works)
        self.guess, self._spread = self._guessed()

    def _per_row(self, values: Array) -> Array:
        sums = np.bincount(self._row, values * self._count, minlength=len(self.measured))
        return sums.astype(np.float64)

    def _guessed(self) -> tuple[Array, Array]:
        """From the tests that moved and computed most: no rate is below what was seen."""
        moved = self._per_row(self._layer_bytes + self._head_bytes) / self.measured
        computed = self._per_row(self._layer_operations + self._head_operations) / self.measured
        of_row = np.zeros(len(self.measured), dtype=int)
        of_row[self._row] = self._kind
        bandwidths = [float(moved[of_row == kind].max()) for kind in range(len(self.kinds))]
        rates = [float(computed[of_row == kind].max()) for kind in range(len(self.kinds))]
        guess = {
            "kv_bytes_per_s": max(bandwidths) / 2,
            "attention_operations_per_s": max(rates) / 3,
            "value_s": _VALUE_BYTES / max(bandwidths),
            "logit_s": _LOGIT_S,
            "layer_s": _LAYER_S,
            "step_s": _STEP_S,
        }
        theta = [guess[name] for name in _SHARED]
        spread = [_SPREADS[name] for name in _SHARED]
        for bandwidth, rate in zip(bandwidths, rates, strict=True):
            theta += [bandwidth, rate, 1.0]  # of the overlap what is above 1
            spread += [_SPREADS[name] for name in _OF_KIND]
        return np.log(np.maximum(np.array(theta), 1e-30)), np.array(spread)

    def rates(self, theta: Array) -> dict[str, StepRates]:
        values = np.exp(theta)
        shared = dict(zip(_SHARED, map(float, values), strict=False))
        found = {}
        for index, kind in enumerate(self.kinds):
            at = len(_SHARED) + index * len(_OF_KIND)
            bandwidth, rate, above = map(float, values[at : at + 3])
            found[kind] = StepRates(
                bandwidth_bytes_per_s=bandwidth, operations_per_s=rate, overlap=1 + above, **shared
            )
        return found

    def seconds(self, theta: Array) -> Array:
        """Of each row; the same sums as StepRates.time, over all steps at once."""
        values = np.exp(np.clip(theta, -80, 80))
        kv, attention, value_s, logit_s, layer_s, step_s = values[: len(_SHARED)]
        of_kind = values[len(_SHARED) :].reshape(len(self.kinds), len(_OF_KIND))[self._kind]
        bandwidth, rate, overlap = of_kind[:, 0], of_kind[:, 1], 1 + of_kind[:, 2]
        step = (
            _join(self._layer_bytes / bandwidth, self._layer_operations / rate, overlap)
            + _join(self._head_bytes / bandwidth, self._head_operations / rate, overlap)
            + _join(self._kept / kv, self._attend / attention, overlap)
            + self._values * value_s
            + self._logits * logit_s
            + self._layers * layer_s
            + step_s
        )
        return self._per_row(step)

    def residuals(self, theta: Array) -> Array:
        """Errors of the rows and distances from the guesses, each in its own expected size."""
        error = np.log(self.seconds(theta) / self.measured) / _NOISE
        return np.concatenate([error, (theta - self.guess) / self._spread])

    def weights(self, residuals: Array) -> Array:
        """Square roots of Huber's weights; a guess always has its own."""
        weight = np.ones(len(residuals))
        size = np.abs(residuals[: len(self.measured)])
        weight[: len(size)] = np.sqrt(np.minimum(1.0, _HUBER / np.maximum(size, 1e-12)))
        return weight


def _join(one: Array, other: Array, overlap: Array) -> Array:
    large = np.maximum(one, other)
    share = np.divide(np.minimum(one, other), large, out=np.zeros_like(large), where=large > 0)
    joined: Array = large * (1 + share**overlap) ** (1 / overlap)
    return joined


def _least_squares(problem: _Problem, theta: Array) -> Array:
    """Where the weighted sum of squares is least, as far as steps from `theta` find it."""
    damping = 1e-2
    residuals = problem.residuals(theta)
    for _ in range(_ITERATIONS):
        weight = problem.weights(residuals)
        jacobian = _jacobian(problem, theta, residuals) * weight[:, None]
        target = residuals * weight
        normal, gradient = jacobian.T @ jacobian, jacobian.T @ target
        cost, improved = _cost(problem, residuals), False
        while damping < 1e8:
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient)
            tried = theta + np.clip(step, -1.0, 1.0)
            following = problem.residuals(tried)
            if _cost(problem, following) < cost:
                improved = True
                break
            damping *= 4
        if not improved:
            return theta
        theta, residuals, damping = tried, following, max(damping / 4, 1e-9)
        if float(np.abs(step).max()) < _ENOUGH:
            return theta
    return theta


def _cost(problem: _Problem, residuals: Array) -> float:
    """Huber's: squares up to the limit, lines beyond it."""
    count = len(problem.measured)
    size = np.abs(residuals[:count])
    rows = np.where(size <= _HUBER, size**2, 2 * _HUBER * size - _HUBER**2)
    return float(rows.sum() + (residuals[count:] ** 2).sum())


def _jacobian(problem: _Problem, theta: Array, residuals: Array) -> Array:
    small = 1e-6
    columns = []
    for index in range(len(theta)):
        moved = theta.copy()
        moved[index] += small
        columns.append((problem.residuals(moved) - residuals) / small)
    return np.stack(columns, axis=1)
