"""Things one can do to serve faster, cheaper or more, and what each was seen to gain."""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.catalog.rows.row import Count, Figure, Row

Category = Literal[
    "attention", "kv-cache", "batching", "scheduling", "quantization", "speculation", "parallelism",
    "architecture", "compilation", "caching", "routing", "deployment", "cost", "compression",
]  # fmt: skip


class Technique(Row, frozen=True, kw_only=True):
    """A way to serve faster, cheaper or more, and what it was seen to gain."""

    category: Category | None = None
    does: str | None = None
    phase: Literal["prefill", "decode", "both", "system"] | None = None
    lossless: bool | None = None
    gains: dict[str, Figure] = msgspec.field(default_factory=dict)
    """By what is gained ("throughput", "decode-latency", "kv-memory" …), each against the baseline
    in its note; factors are "x", of which more is better.
    """
    figures: dict[str, Figure] = msgspec.field(default_factory=dict)
    impact_rank: Count | None = None
    """1 gains most, by the ranking of the source."""
    needs: tuple[str, ...] = ()
    """Conditions without which it gains nothing."""
    avoid_when: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    paper: str | None = None
