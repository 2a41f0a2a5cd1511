"""Which requests were good enough, by limits of TTFT, TPOT and E2E.

As `headrace bench` judges: a request is good when it meets every condition of each request; a
condition of all is met by a mean or a percentile. Percentiles lie between two samples in a straight
line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from headrace.errors import ConfigError, shown
from headrace.plan.simulation.finished import Column, Finished

_MS_PER_S = 1e3
JUDGED = ("ttft", "tpot", "e2e")


class Condition(Protocol):
    """A limit in milliseconds; quantile: 0 to 1 where it is one of all requests."""

    @property
    def metric(self) -> str: ...
    @property
    def over(self) -> Literal["each", "mean", "quantile"]: ...
    @property
    def quantile(self) -> float | None: ...
    @property
    def text(self) -> str: ...
    def holds(self, value: float) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class ConditionResult:
    """The result of one condition of an SLO."""

    condition: str
    share: float | None
    """Share of the requests that met a condition per request."""
    value_ms: float | None
    """Value of a condition over all requests."""
    met: bool


@dataclass(frozen=True, kw_only=True)
class Goodput:
    """The result of a simulation under an SLO."""

    judged: int
    good: int
    """Requests that met every condition of each, of `judged`."""
    fraction: float
    requests_per_s: float
    output_tokens_per_s: float
    conditions: tuple[ConditionResult, ...]
    met: bool | None
    """Whether every condition of all holds; None without conditions. Rates are per second of the
    run."""


def check_conditions(conditions: Sequence[Condition]) -> None:
    """Raises ConfigError for a metric that a simulation has not."""
    for one in conditions:
        if one.metric not in JUDGED:
            raise ConfigError(
                f"SLO {shown(one.text)}: a simulation has no {one.metric}; use one of "
                f"{', '.join(JUDGED)}"
            )


def judge(
    finished: Finished, conditions: Sequence[Condition], seconds: float, refused: int = 0
) -> Goodput:
    """Goodput of a run of so many seconds. refused: requests that are bad in any case."""
    check_conditions(conditions)
    good = np.ones(len(finished), dtype=bool)
    results = []
    for one in conditions:
        values_ms = finished.times(one.metric) * _MS_PER_S
        if one.over == "each":
            meets = _meets(one, values_ms)
            good &= meets
            met = int(meets.sum())
            count = len(finished) + refused
            results.append(
                ConditionResult(
                    condition=one.text, share=met / count if count else 0.0, value_ms=None,
                    met=met == count,
                )
            )  # fmt: skip
        else:
            value = _of_all(one, values_ms)
            results.append(
                ConditionResult(
                    condition=one.text, share=None, value_ms=value,
                    met=value is not None and one.holds(value),
                )
            )  # fmt: skip
    judged = len(finished) + refused
    tokens = int(np.array(finished.output_tokens)[good].sum())
    count = int(good.sum())
    of_all = [got.met for one, got in zip(conditions, results, strict=True) if one.over != "each"]
    return Goodput(
        judged=judged,
        good=count,
        fraction=count / judged if judged else 0.0,
        requests_per_s=count / seconds if seconds else 0.0,
        output_tokens_per_s=tokens / seconds if seconds else 0.0,
        conditions=tuple(results),
        met=all(of_all) if of_all else None,
    )


def _meets(condition: Condition, values_ms: Column) -> npt.NDArray[np.bool_]:
    """A request with one token has no TPOT and misses no limit of it."""
    found = [np.isnan(value) or condition.holds(float(value)) for value in values_ms]
    return np.array(found, dtype=bool)


def _of_all(condition: Condition, values_ms: Column) -> float | None:
    values = values_ms[~np.isnan(values_ms)]
    if not values.size:
        return None
    if condition.quantile is None:
        return float(values.mean())
    return float(np.percentile(values, 100 * condition.quantile))
