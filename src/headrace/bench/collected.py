"""The values of one metric, collected from requests: for summaries, comparisons and plots alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.bench.definitions.measure import Definition, Measures, Metric
from headrace.bench.pooled import PooledSamples

_MS_PER_NS = 1e-6


def collected(
    measured: Sequence[Measures], definition: Definition, metric: Metric
) -> PooledSamples:
    """Milliseconds, tokens per second of a rate; with the weights that the definition gives.

    Requests are those that have the metric, numbered in their order.
    """
    name = metric.name
    having = [one for one in measured if _has(one, metric)]
    weights = None
    if metric.each == "gap":
        sizes = [len(one.gaps_ns[name]) for one in having]
        values = np.asarray([gap for one in having for gap in one.gaps_ns[name]], dtype=np.float64)
        owners = np.repeat(np.arange(len(having)), sizes)
    else:
        every = [one.rates[name] if metric.each == "rate" else one.times_ns[name] for one in having]
        values = np.asarray(every, dtype=np.float64)
        owners = np.arange(len(having))
        if metric.each == "request" and any(name in one.weights for one in having):
            weights = np.asarray([one.weights.get(name, 1.0) for one in having], dtype=np.float64)
    scale = 1.0 if metric.each == "rate" else _MS_PER_NS
    return PooledSamples(values * scale, owners, len(having), weights, definition.interpolation)


def _has(one: Measures, metric: Metric) -> bool:
    if metric.each == "gap":
        return bool(one.gaps_ns.get(metric.name))
    return metric.name in (one.rates if metric.each == "rate" else one.times_ns)
