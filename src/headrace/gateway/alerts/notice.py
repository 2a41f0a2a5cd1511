"""An alert and its formats."""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.gateway.accounts.alert import Alert
from headrace.gateway.accounts.errors import amount_text

Event = Literal[
    "budget.threshold", "breaker.open", "breaker.closed", "counters.lost", "counters.back",
    "key.refused", "ledger.lost", "variant.taken_out",
]  # fmt: skip
Format = Literal["json", "slack"]


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """An alert."""

    id: str
    """Random, and the same at each attempt to deliver it."""
    event: Event
    created_s: int
    """Unix time."""
    text: str
    """For people to read."""
    data: dict[str, str | int | float | None]
    """For programs; the keys depend on `event`."""


def budget_text(alert: Alert) -> str:
    """The text of a budget's alert."""
    used, limit = amount_text(alert.used, alert.unit), amount_text(alert.limit, alert.unit)
    return (
        f"{alert.level} {alert.name} has used {used} of {limit} {alert.window.words} "
        f"for models {alert.model}"
    )


def budget_data(alert: Alert) -> dict[str, str | int | float | None]:
    """The data of a budget's alert. Amounts are in `unit`, where nusd means nano-dollars;
    resets_at_s is None for a rolling window."""
    resets_ms = alert.resets_at_ms
    return {
        "level": alert.level,
        "name": alert.name,
        "model": alert.model,
        "window": alert.window.name,
        "threshold": alert.threshold,
        "unit": alert.unit,
        "used": alert.used,
        "limit": alert.limit,
        "resets_at_s": None if resets_ms is None else resets_ms // 1000,
    }


def written(notice: Notice, format: Format) -> bytes:
    """The body of the POST."""
    if format == "slack":
        return msgspec.json.encode({"text": f"headrace gateway: {_for_slack(notice.text)}"})
    return msgspec.json.encode(notice)


def _for_slack(text: str) -> str:
    """Escape the three characters that Slack treats as markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
