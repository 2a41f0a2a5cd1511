"""What a simulation says: distributions, rates, goodput, use of the replicas, cost, series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import msgspec
import numpy as np

from headrace.plan.simulation.autoscaler import Scaling
from headrace.plan.simulation.batch_means import band_of
from headrace.plan.simulation.finished import TIMES, Column
from headrace.plan.simulation.goodput import Condition, Goodput, judge
from headrace.plan.simulation.overload import Overload, overload_of
from headrace.plan.simulation.series import Point
from headrace.plan.simulation.service import Run
from headrace.plan.simulation.settings import SimulationSettings

_HOUR_S = 3600.0
PERCENTILES = (50, 90, 95, 99)
QUANTILES = (*(step / 100 for step in range(100)), 0.995, 0.999, 1.0)
"""Shares of requests of a curve of latency, close to the end where SLOs are."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Statistics of a time over requests, in seconds."""

    count: int
    mean_s: float
    p50_s: float
    p90_s: float
    p95_s: float
    p99_s: float
    most_s: float
    bands: dict[str, tuple[float, float]]
    """Bands of chance for the mean and the percentiles, by name ("mean", "p95")."""
    quantiles_s: tuple[float, ...]
    """The value at each of `QUANTILES`, for a curve."""


@dataclass(frozen=True, kw_only=True)
class LaneResult:
    """The result of the requests of one priority, or of all (None)."""

    priority: int | None
    requests: int
    spreads: dict[str, Spread | None]
    """Statistics by the names of `TIMES`."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """US dollars; million_tokens: for a million of output tokens, None where there were none."""

    usd_per_replica_hour: float
    total: float
    per_hour: float
    million_output_tokens: float | None


@dataclass(frozen=True, kw_only=True)
class SimulationResult:
    """A simulated service. Seconds are of the service, not of the computing."""

    settings: SimulationSettings
    seconds: float
    arrived: int
    completed: int
    refused: int
    retries: int
    preemptions: int
    prompt_tokens: int
    served_tokens: int
    """Output of requests that ended."""
    requests_per_s: float
    output_tokens_per_s: float
    overall: LaneResult
    lanes: tuple[LaneResult, ...]
    goodput: Goodput | None
    replica_hours: float
    replicas_most: int
    busy_share: float
    """Share of the paid replica-seconds in which a step was running."""
    batch: float
    """Requests in a step, by time."""
    kv_share: float
    kv_share_most: float
    waiting: float
    """With `kv_share`: means of the series."""
    waiting_most: int
    prefix_hit_share: float | None
    """Share of the looked-up prompt tokens that were found."""
    cost: Cost | None
    points: tuple[Point, ...]
    decisions: tuple[Scaling, ...]
    failures: tuple[tuple[float, int], ...]
    overload: Overload | None = None
    """None if the service kept up with its load."""
    notes: tuple[str, ...] = ()

    @property
    def overload_text(self) -> str:
        """The overload in words, "" if the service kept up."""
        if self.overload is None:
            return ""
        settings = self.settings
        fixed = settings.autoscale is None and settings.disaggregation is None
        return self.overload.text(settings.replicas if fixed else None)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = asdict(self)
        # Steps as they were measured are records of their own kind.
        found["settings"]["engine"]["draft_times"] = msgspec.to_builtins(
            self.settings.engine.draft_times
        )
        found["points"] = [one._asdict() for one in self.points]
        found["decisions"] = [one._asdict() for one in self.decisions]
        found["failures"] = [{"at_s": at, "replica": number} for at, number in self.failures]
        return found


def result_of(
    settings: SimulationSettings,
    run: Run,
    *,
    conditions: Sequence[Condition] = (),
    usd_per_replica_hour: float | None = None,
    notes: tuple[str, ...] = (),
) -> SimulationResult:
    """Figures of a run; conditions: of an SLO."""
    finished = run.finished
    order = np.argsort(np.array(finished.arrived_s), kind="stable")
    times = {name: finished.times(name)[order] for name in TIMES}
    priorities = np.array(finished.priorities)[order]
    found = sorted(set(priorities.tolist()))
    served = int(np.sum(np.array(finished.output_tokens))) if len(finished) else 0
    paid_s = sum((one.gone_s or run.end_s) - one.started_s for one in run.replicas)
    busy_s = sum(one.busy_s for one in run.replicas)
    batch_s = sum(one.batch_s for one in run.replicas)
    query_tokens = sum(one.query_tokens for one in run.replicas)
    points = run.points
    per_s = 1 / run.end_s if run.end_s else 0.0
    hours = paid_s / _HOUR_S
    cost = None
    if usd_per_replica_hour is not None:
        total = hours * usd_per_replica_hour
        cost = Cost(
            usd_per_replica_hour=usd_per_replica_hour,
            total=total,
            per_hour=total * per_s * _HOUR_S,
            million_output_tokens=total / served * 1e6 if served else None,
        )
    return SimulationResult(
        settings=settings,
        seconds=run.end_s,
        arrived=run.arrived,
        completed=len(finished),
        refused=run.refused,
        retries=run.retries,
        preemptions=run.preemptions,
        prompt_tokens=int(sum(finished.prompt_tokens)),
        served_tokens=served,
        requests_per_s=len(finished) * per_s,
        output_tokens_per_s=served * per_s,
        overall=_lane(None, times),
        lanes=tuple(
            _lane(one, {name: column[priorities == one] for name, column in times.items()})
            for one in found
        )
        if len(found) > 1
        else (),
        goodput=judge(finished, conditions, run.end_s, run.refused) if conditions else None,
        replica_hours=hours,
        replicas_most=max(one.replicas_paid for one in points),
        busy_share=busy_s / paid_s if paid_s else 0.0,
        batch=batch_s / busy_s if busy_s else 0.0,
        kv_share=_mean([one.kv_share for one in points]),
        kv_share_most=max(one.kv_share for one in points),
        waiting=_mean([one.waiting for one in points]),
        waiting_most=max(one.waiting for one in points),
        prefix_hit_share=(
            sum(one.hit_tokens for one in run.replicas) / query_tokens if query_tokens else None
        ),
        cost=cost,
        points=points,
        decisions=run.decisions,
        failures=run.failures,
        overload=overload_of(finished),
        notes=notes,
    )


def spread_of(values: Column) -> Spread | None:
    """Of values in order of arrival. None of none; NaN is left out."""
    values = values[~np.isnan(values)]
    if not values.size:
        return None
    p50, p90, p95, p99 = (float(one) for one in np.percentile(values, PERCENTILES))
    bands = {
        f"p{percent}": band_of(values, partial(_percentile, percent)) for percent in PERCENTILES
    }
    return Spread(
        count=int(values.size), mean_s=float(values.mean()), p50_s=p50, p90_s=p90, p95_s=p95,
        p99_s=p99, most_s=float(values.max()),
        bands={"mean": band_of(values, lambda one: float(one.mean())), **bands},
        quantiles_s=tuple(float(one) for one in np.quantile(values, QUANTILES)),
    )  # fmt: skip


def _percentile(percent: float, values: Column) -> float:
    return float(np.percentile(values, percent))


def _lane(priority: int | None, times: dict[str, Column]) -> LaneResult:
    return LaneResult(
        priority=priority,
        requests=int(times["ttft"].size),
        spreads={name: spread_of(column) for name, column in times.items()},
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
