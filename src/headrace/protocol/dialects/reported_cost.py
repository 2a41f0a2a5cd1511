"""The cost of an answer that a provider itself reports, in a usage object of any dialect.

OpenRouter says it in dollars, Perplexity in an object, xAI in ticks of 1e-10 dollars. With a key of
one's own at OpenRouter (`is_byok`) `cost` is its fee alone, and the vendor's bill stands beside it.
"""

from __future__ import annotations

import math
from typing import Any

from headrace.protocol.dialects.json_values import mapping
from headrace.protocol.neutral.dollars import NUSD_PER_USD

_NUSD_PER_TICK = 0.1
# A million dollars for one answer: more is a fault of who counted, and would empty any budget.
_MOST_NUSD = 10**15


def reported_cost_nusd(usage: dict[str, Any]) -> int | None:
    """The cost in nano-dollars; None if it is missing, incomplete or implausible."""
    cost = usage.get("cost")
    if isinstance(cost, dict):
        cost = cost.get("total_cost")
    if cost is None:
        reported = _nusd(usage.get("cost_in_usd_ticks"), _NUSD_PER_TICK)
    else:
        reported = _nusd(cost, NUSD_PER_USD)
    if reported is None or usage.get("is_byok") is not True:
        return reported
    vendors = _nusd(mapping(usage.get("cost_details")).get("upstream_inference_cost"), NUSD_PER_USD)
    # Unknown what the vendor takes: the fee alone would be no bill.
    return None if vendors is None else reported + vendors


def unread_cost(usage: dict[str, Any]) -> dict[str, Any]:
    """The field `cost` where it says something else than the whole bill in dollars; else {}."""
    if isinstance(usage.get("cost"), dict) or usage.get("is_byok") is True:
        return {"cost": usage.get("cost")}
    return {}


def _nusd(cost: Any, nusd_per_unit: float) -> int | None:
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not math.isfinite(cost):
        return None
    return round(cost * nusd_per_unit) if 0 <= cost <= _MOST_NUSD / nusd_per_unit else None
