"""Numbers and rules of thumb that belong to no row of another kind."""

from __future__ import annotations

from typing import Literal

from headrace.catalog.rows.row import Figure, Row

Topic = Literal[
    "slo", "cost", "energy", "efficiency", "memory", "tokens", "deployment", "batching",
    "speculation", "moe", "market", "definition", "quantization", "hardware", "practice", "pitfall",
]  # fmt: skip


class Constant(Row, frozen=True, kw_only=True):
    """One number, or one rule in words, with what it is about and where it holds."""

    topic: Topic
    figure: Figure | None = None
    rule: str | None = None
    holds_when: str | None = None
