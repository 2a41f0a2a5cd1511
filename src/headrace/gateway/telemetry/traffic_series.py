"""Metrics of what becomes of requests besides their answers: hedges, shadows, canaries, engines."""

from __future__ import annotations

from headrace.telemetry.series import CounterSeries


class TrafficSeries:
    """Labels are names of the file."""

    def __init__(self) -> None:
        self.hedges = CounterSeries(
            "headrace:gateway_hedges",
            "Slow requests of hedged models, by what was done about it.",
            ("model", "outcome"),
        )
        self.shadows = CounterSeries(
            "headrace:gateway_shadow_requests",
            "Copies of requests for a model's shadow, by what became of them.",
            ("model", "outcome"),
        )
        self.taken_out = CounterSeries(
            "headrace:gateway_variants_ejected",
            "Variants that were taken out as they failed too often.",
            ("model", "variant"),
        )
        self.engine_reads = CounterSeries(
            "headrace:gateway_engine_reads",
            "Readings of engines' /metrics, by whether they told their load.",
            ("provider", "outcome"),
        )

    def all(self) -> tuple[CounterSeries, ...]:
        """In the order in which they are told."""
        return (self.hedges, self.shadows, self.taken_out, self.engine_reads)
