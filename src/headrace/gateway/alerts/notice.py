"""Something people should know at once, and how it is written."""

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
    """id: random, the same at each attempt to tell it. created_s: Unix time. text: for people.
    data: for programs, by `event`."""

    id: str
    event: Event
    created_s: int
    text: str
    data: dict[str, str | int | float | None]


def budget_text(alert: Alert) -> str:
    """What a budget's alert says."""
    used, limit = amount_text(alert.used, alert.unit), amount_text(alert.limit, alert.unit)
    return (
        f"{alert.level} {alert.name} has used {used} of {limit} {alert.window.words} "
        f"for models {alert.model}"
    )


def budget_data(alert: Alert) -> dict[str, str | int | float | None]:
    """Amounts are in `unit`; nusd are nano-dollars. resets_at_s: None for a rolling window."""
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
    """The body of a POST."""
    if format == "slack":
        return msgspec.json.encode({"text": f"headrace gateway: {_for_slack(notice.text)}"})
    return msgspec.json.encode(notice)


def _for_slack(text: str) -> str:
    """Slack reads these three as marks."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
