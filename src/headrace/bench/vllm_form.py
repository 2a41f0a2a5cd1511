"""What vLLM's command line says of the statistics in a result; stored with a run.

Source: vLLM 0.33.0 (4ba787ec9), vllm/benchmarks/serve.py.
"""

from __future__ import annotations

import msgspec


class VllmForm(msgspec.Struct, frozen=True, kw_only=True):
    """Which of vLLM's statistics a result has, as its command line says: `percentiles` of each of
    `metrics`, by vLLM's names (None: of all); detailed: with a list entry for each request, as
    --save-detailed writes."""

    percentiles: tuple[float, ...] = (50.0, 90.0, 95.0, 99.0)
    metrics: tuple[str, ...] | None = None
    detailed: bool = False


DEFAULT_FORM = VllmForm()
