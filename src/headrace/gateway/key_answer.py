"""GET /api/v1/key: the permissions and remaining limits of a key, in OpenRouter's format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headrace.gateway.access import Access
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.caller import ADMIN, MASTER, Caller
from headrace.gateway.accounts.counters import Reading
from headrace.protocol.neutral.dollars import NUSD_PER_USD

PATHS = ("/api/v1/key", "/v1/key", "/api/v1/auth/key")
# OpenRouter's words for the period of a limit; only calendar windows have one.
_RESETS = {"1d": "daily", "1w": "weekly", "1M": "monthly"}
_MINUTE = "60s"
_NO_LIMIT = -1


class KeyAnswer:
    """The endpoint; `accounts` is None if nothing is counted."""

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
        body = {"data": _told(caller, readings, at_ms)}
        return 200, "application/json", msgspec.json.encode(body)


def _told(caller: Caller | None, readings: Sequence[Reading], at_ms: int) -> dict[str, Any]:
    """The body. limit, usage and limit_remaining are of the budget with the least left, at whatever
    level, in dollars; null without one."""
    metered = [_metered(reading, at_ms) for reading in readings]
    budgets = [
        entry for entry in metered
        if entry["name"] == "budget" and entry["unit"] == "usd" and entry["model"] == "*"
    ]  # fmt: skip
    tightest = min(budgets, key=lambda budget: budget["remaining"], default=None)
    rpm = [entry["limit"] for entry in metered if entry["name"] == "rpm" and entry["model"] == "*"]
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
    """One limit or budget; `held` is reserved by running requests."""
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
