"""What an engine's /metrics says of its load, by the names that vLLM and headrace share."""

from __future__ import annotations

from typing import NamedTuple


class EngineReading(NamedTuple):
    """kv_use: share of the KV cache that running requests own, 0 to 1. at_s: when it was read, of
    the gateway's clock. started_s: Unix time of the engine's start, None where it does not say."""

    at_s: float
    waiting: float
    running: float
    kv_use: float
    started_s: float | None = None


def engine_reading(text: str, at_s: float) -> EngineReading | None:
    """None for a text that tells neither what waits nor what runs."""
    # It brings the library that reads metrics, which gateways without engines do without.
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
