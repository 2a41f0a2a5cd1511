"""GET /api/v1/key: what the key that asks may do, and what is left of it, in OpenRouter's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headrace.gateway.access import ADMIN, MASTER, Access
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.caller import Caller
from headrace.gateway.accounts.counters import Reading
from headrace.protocol.neutral.dollars import NUSD_PER_USD

PATHS = ("/api/v1/key", "/v1/key", "/api/v1/auth/key")
# OpenRouter's words for when a limit begins anew; only windows by the calendar do.
_RESETS = {"1d": "daily", "1w": "weekly", "1M": "monthly"}
_MINUTE = "60s"
_NO_LIMIT = -1


class KeyAnswer:
    """accounts: None where nothing is counted."""

    def __init__(self, access: Access, accounts: Accounts | None) -> None:
        self._access = access
        self._accounts = accounts

    async def tell(self, headers: Mapping[str, str]) -> tuple[int, str, bytes]:
        """Status, content type and body. Raises RefusedKeyError."""
        caller = self._access.caller(headers)
        readings: Sequence[Reading] = ()
        at_ms = 0
        if caller is not None and self._accounts is not None:
            at_ms, readings = await self._accounts.readings_of(caller)
        told = {"data": _told(caller, readings, at_ms)}
        return 200, "application/json", msgspec.json.encode(told)


def _told(caller: Caller | None, readings: Sequence[Reading], at_ms: int) -> dict[str, Any]:
    """limit, usage and limit_remaining are of the budget with the least left, at whatever level,
    in dollars; null where there is none."""
    metered = [_metered(one, at_ms) for one in readings]
    budgets = [
        one for one in metered
        if one["name"] == "budget" and one["unit"] == "usd" and one["model"] == "*"
    ]  # fmt: skip
    tightest = min(budgets, key=lambda one: one["remaining"], default=None)
    rpm = [one["limit"] for one in metered if one["name"] == "rpm" and one["model"] == "*"]
    resets = None
    if tightest is not None and tightest["calendar"]:
        resets = _RESETS.get(tightest["per"])
    return {
        "label": None if caller is None else caller.label or caller.key_id,
        "limit": None if tightest is None else tightest["limit"],
        "limit_remaining": None if tightest is None else tightest["remaining"],
        "limit_reset": resets,
        "usage": None if tightest is None else tightest["used"],
        "is_free_tier": False,
        "is_management_key": caller is MASTER or caller is ADMIN,
        "rate_limit": {"requests": min(rpm, default=_NO_LIMIT), "interval": _MINUTE},
        "limits": metered,
    }


def _metered(reading: Reading, at_ms: int) -> dict[str, Any]:
    """One limit or budget. held: by requests that run."""
    meter = reading.meter
    in_dollars = meter.unit == "nusd"
    limit = meter.limit(at_ms)
    left = max(0, limit - reading.used - reading.held)

    def amount(number: int) -> int | float:
        return number / NUSD_PER_USD if in_dollars else number

    return {
        "level": meter.level,
        "of": meter.name,
        "name": meter.limit_name,
        "unit": "usd" if in_dollars else meter.unit,
        "per": None if meter.unit == "running" else meter.window.name,
        "calendar": meter.window.calendar,
        "model": meter.model,
        "limit": amount(limit),
        "used": amount(reading.used),
        "held": amount(reading.held),
        "remaining": amount(left),
    }
