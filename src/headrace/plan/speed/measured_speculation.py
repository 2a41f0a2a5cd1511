"""What a plan predicts of drafts beside what was counted of them."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.errors import ConfigError
from headrace.plan.saved_plan import SavedPlan
from headrace.telemetry.draft_counts import DraftCounts

FIGURE = "speed.speculation"
"""The id of the speedup; those of tokens and cost begin with it."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of drafts. measured: None where nobody counted what it takes."""

    id: str
    name: str
    unit: str
    predicted: float
    low: float
    high: float
    measured: float | None

    @property
    def error(self) -> float | None:
        """By what share the prediction is above what was measured."""
        return None if not self.measured else self.predicted / self.measured - 1


def compared(plan: SavedPlan, counts: DraftCounts) -> tuple[Comparison, ...]:
    """Tokens of a step, its cost and the speedup.

    Raises ConfigError for a plan that predicts nothing of drafts.
    """
    figures = plan.figures
    measured = {
        f"{FIGURE}.tokens": counts.tokens_per_step,
        f"{FIGURE}.cost": counts.cost_ratio,
        FIGURE: counts.speedup,
    }
    if not measured.keys() <= figures.keys():
        raise ConfigError(
            f"this {plan.title} predicts nothing of drafts: make one with `headrace plan speed "
            "MODEL --draft-acceptance SHARE`"
        )
    found = []
    for id, value in measured.items():
        one = figures[id]
        predicted = float(one.value or 0.0)
        found.append(
            Comparison(
                id=id,
                name=one.name,
                unit=one.unit,
                predicted=predicted,
                low=predicted if one.low is None else float(one.low),
                high=predicted if one.high is None else float(one.high),
                measured=value,
            )
        )
    return tuple(found)


def comparison_dict(
    source: str, counts: DraftCounts, rows: tuple[Comparison, ...]
) -> dict[str, Any]:
    """For JSON."""
    return {
        "source": source,
        "counts": msgspec.to_builtins(counts),
        "figures": [{**msgspec.to_builtins(row), "error": row.error} for row in rows],
    }
