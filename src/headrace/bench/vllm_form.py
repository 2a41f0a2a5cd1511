"""What vLLM's command line says of the statistics in a result; stored with a run.

Source: vLLM 0.33.0 (4ba787ec9), vllm/benchmarks/serve.py.
"""

from __future__ import annotations

import msgspec


class VllmForm(msgspec.Struct, frozen=True, kw_only=True):
    """The statistics under vLLM's keys that a result has, as chosen on the command line."""

    percentiles: tuple[float, ...] = (50.0, 90.0, 95.0, 99.0)
    """Percentiles of each of `metrics`."""
    metrics: tuple[str, ...] | None = None
    """Metrics by vLLM's names; None: all."""
    detailed: bool = False
    """Add lists with an entry per request, as --save-detailed does."""


DEFAULT_FORM = VllmForm()
