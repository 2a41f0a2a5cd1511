"""The load in an engine's /metrics, by the names that vLLM and headrace share."""

from __future__ import annotations

from typing import NamedTuple


class EngineReading(NamedTuple):
    """One reading of an engine's load."""

    at_s: float
    """When it was read, by the gateway's clock."""
    waiting: float
    running: float
    kv_use: float
    """Share of the KV cache that running requests own, 0 to 1."""
    started_s: float | None = None
    """Unix time of the engine's start; None if it does not report that."""


def engine_reading(text: str, at_s: float) -> EngineReading | None:
    """The reading; None if the text lacks the numbers of waiting and running requests."""
    # It imports the metrics library, which gateways without engines do not need.
    from headrace.telemetry.readings import read_texts

    readings, _ = read_texts([(0, text)])
    values = readings[0].values if readings else {}
    if "running" not in values or "waiting" not in values:
        return None
    return EngineReading(
        at_s=at_s,
        waiting=max(0.0, values["waiting"]),
        running=max(0.0, values["running"]),
        kv_use=min(1.0, max(0.0, values.get("kv", 0.0))),
        started_s=values.get("started"),
    )
