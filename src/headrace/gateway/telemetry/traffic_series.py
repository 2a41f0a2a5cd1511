"""Metrics of hedges, shadows, canaries and engines."""

from __future__ import annotations

from headrace.telemetry.series import CounterSeries


class TrafficSeries:
    """Counters of extra traffic; labels are configured names."""

    def __init__(self) -> None:
        self.hedges = CounterSeries(
            "headrace:gateway_hedges",
            "Slow requests of hedged models, by what was done.",
            ("model", "outcome"),
        )
        self.shadows = CounterSeries(
            "headrace:gateway_shadow_requests",
            "Copies of requests for a model's shadow, by result.",
            ("model", "outcome"),
        )
        self.taken_out = CounterSeries(
            "headrace:gateway_variants_ejected",
            "Variants taken out because they failed too often.",
            ("model", "variant"),
        )
        self.engine_reads = CounterSeries(
            "headrace:gateway_engine_reads",
            "Readings of engines' /metrics, by whether they reported their load.",
            ("provider", "outcome"),
        )

    def all(self) -> tuple[CounterSeries, ...]:
        """All series, in the order of /metrics."""
        return (self.hedges, self.shadows, self.taken_out, self.engine_reads)
