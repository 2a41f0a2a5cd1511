"""A service under a load, and the fewest replicas that meet an SLO."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from headrace.errors import ConfigError
from headrace.plan.simulation.arrival import Arrival
from headrace.plan.simulation.goodput import Condition, check_conditions
from headrace.plan.simulation.result import SimulationResult, result_of
from headrace.plan.simulation.service import OnProgress, Service
from headrace.plan.simulation.settings import SimulationSettings
from headrace.plan.validation import not_below, share


def simulate(
    settings: SimulationSettings,
    arrivals: Iterable[Arrival],
    *,
    conditions: Sequence[Condition] = (),
    usd_per_replica_hour: float | None = None,
    notes: tuple[str, ...] = (),
    on_progress: OnProgress | None = None,
) -> SimulationResult:
    """Run a service until the last request has ended. The same seeds give the same result.

    arrivals: in order of time. conditions: of an SLO, as `headrace.bench.slo.parse_slo` reads it.
    Raises ConfigError where nothing comes or nothing that comes fits in a replica.
    """
    check_conditions(conditions)
    run = Service(settings, arrivals, on_progress).run()
    if not run.arrived:
        raise ConfigError("this load has no requests: raise --rate, --scale or --duration")
    if run.refused == run.arrived:
        engine = settings.engine
        raise ConfigError(
            f"none of {run.arrived:,} requests fits in the KV cache of a replica, "
            f"{engine.kv_tokens:,} tokens: raise --kv-tokens or shorten them"
        )
    if run.refused:
        notes += (
            f"{run.refused:,} requests need more than the KV cache of a replica and were refused",
        )
    return result_of(
        settings, run, conditions=conditions, usd_per_replica_hour=usd_per_replica_hour,
        notes=notes,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FewestReplicas:
    """The smallest number of replicas that meets an SLO."""

    replicas: int
    attainment: float
    tried: tuple[tuple[int, bool, float], ...]
    """Replicas and whether they met the SLO, in the order they were tried."""
    result: SimulationResult
    """Result with that number of replicas."""


def fewest_replicas(
    run: Callable[[int], SimulationResult], most: int, attainment: float, first: int = 1
) -> FewestReplicas:
    """The fewest replicas, up to `most`, with which the SLO is met.

    run: simulates with so many. Met: at least `attainment` of the requests are good and every
    condition of all holds; more replicas are taken to meet what fewer do. first: where the search
    begins; it doubles from there. Raises ConfigError where `most` do not meet it.
    """
    not_below("max_replicas", most, 1, "a service has at least one replica")
    share("attainment", attainment, "the share of requests that are to be good")
    tried: list[tuple[int, bool, float]] = []
    found: SimulationResult | None = None

    def meets(count: int) -> bool:
        nonlocal found
        result = run(count)
        goodput = result.goodput
        if goodput is None:
            raise ConfigError("--find-replicas needs an SLO: add --goodput ttft:500 tpot:50")
        met = goodput.fraction >= attainment and goodput.met is not False
        tried.append((count, met, goodput.fraction))
        if met:
            found = result
        return met

    low, high = 0, min(max(1, first), most)
    while not meets(high):
        if high == most:
            raise ConfigError(
                f"{most:,} replicas do not meet the SLO: {tried[-1][2]:.1%} of the requests "
                f"are good, and {attainment:.1%} have to be; raise --max-replicas, or the "
                "limits"
            )
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if meets(middle) else (middle, high)
    assert found is not None
    return FewestReplicas(replicas=high, attainment=attainment, tried=tuple(tried), result=found)


def with_replicas(settings: SimulationSettings, count: int) -> SimulationSettings:
    """The same service with so many replicas."""
    return replace(settings, replicas=count)
