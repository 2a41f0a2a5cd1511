"""Alerts: once for each threshold and window."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace.gateway.accounts import Accounts, Alert
from headrace.gateway.accounts.counters import Counted, Ended, Late
from headrace.gateway.accounts.memory_counters import MemoryCounters
from tests.gateway.accounts.parts import (
    KEY,
    NOON_MS,
    Clock,
    accounts_of,
    actual,
    budget,
    demand,
    hierarchy,
)

DAY_MS = 86_400_000


async def spend(accounts: Accounts, amount: int) -> None:
    reservation = await accounts.reserve(accounts.caller(KEY), demand(amount))
    await reservation.settle(actual(amount))


async def test_each_threshold_once_per_calendar_window() -> None:
    clock, alerts = Clock(), list[Alert]()
    accounts = accounts_of(hierarchy(team=budget(100, calendar=True)), clock, alerts=alerts)
    await spend(accounts, 49)
    assert alerts == []
    await spend(accounts, 1)
    await spend(accounts, 1)
    assert [alert.threshold for alert in alerts] == [0.5]
    alert = alerts[0]
    assert (alert.level, alert.name, alert.used, alert.limit) == ("team", "red", 50, 100)
    assert (alert.at_ms, alert.resets_at_ms) == (NOON_MS, NOON_MS + DAY_MS // 2)
    await spend(accounts, 49)
    assert [alert.threshold for alert in alerts] == [0.5, 0.85, 0.95, 1.0]
    clock.step(DAY_MS)
    await spend(accounts, 50)
    assert [alert.threshold for alert in alerts[4:]] == [0.5]


async def test_a_rolling_window_does_not_alert_again_when_use_goes_up_and_down() -> None:
    clock, alerts = Clock(), list[Alert]()
    accounts = accounts_of(hierarchy(team=budget(100, thresholds=(0.5,))), clock, alerts=alerts)
    await spend(accounts, 40)
    clock.step(DAY_MS * 3 // 4)
    await spend(accounts, 20)
    clock.step(DAY_MS // 2)
    await spend(accounts, 40)
    assert len(alerts) == 1
    clock.step(DAY_MS + DAY_MS // 4)
    await spend(accounts, 50)
    assert len(alerts) == 2


async def test_a_raised_budget_is_warned_of_again() -> None:
    alerts = list[Alert]()
    accounts = accounts_of(hierarchy(key=budget(10, thresholds=(1.0,))), alerts=alerts)
    await spend(accounts, 10)
    accounts.reconfigure(hierarchy(key=budget(20, thresholds=(1.0,))))
    await spend(accounts, 10)
    assert [alert.limit for alert in alerts] == [10, 20]


async def test_a_receiver_that_fails_costs_no_request(caplog: pytest.LogCaptureFixture) -> None:
    accounts = accounts_of(hierarchy(key=budget(10)))

    def fail(alert: Alert) -> None:
        raise RuntimeError("nobody there")

    accounts._on_alert = fail
    await spend(accounts, 10)
    assert "alerts failed" in caplog.text


async def test_amounts_beyond_doubles_cross_exactly() -> None:
    alerts = list[Alert]()
    limit = 2**60
    accounts = accounts_of(hierarchy(key=budget(limit, thresholds=(0.5,))), alerts=alerts)
    await spend(accounts, limit // 2 - 1)
    assert alerts == []
    await spend(accounts, 1)
    assert [alert.used for alert in alerts] == [limit // 2]


class _LateCounters(MemoryCounters):
    """Counts what ends at the next tick, as Redis does that answered too late; all of it is in what
    is told to be used then."""

    def __init__(self) -> None:
        super().__init__()
        self._late: list[tuple[str, tuple[Counted, ...], int]] = []

    async def end(
        self, id: str, counted: Sequence[Counted], *, reserved_ms: int, at_ms: int
    ) -> Ended:
        self._late.append((id, tuple(counted), reserved_ms))
        return Ended(first=True, counted=False)

    async def tick(self, *, at_ms: int) -> tuple[Late, ...]:
        late, self._late = self._late, []
        ended = [self.end_now(id, one, reserved_ms=ms, at_ms=at_ms) for id, one, ms in late]
        used = ended[-1].used if ended else ()
        return tuple(Late(counted, used, at_ms) for _, counted, _ in late)


async def test_a_threshold_that_was_crossed_while_nobody_counted_is_told_once() -> None:
    alerts = list[Alert]()
    records = hierarchy(team=budget(100, thresholds=(0.5,)))
    accounts = accounts_of(records, counters=_LateCounters(), alerts=alerts)
    for amount in (45, 6, 30):
        await spend(accounts, amount)
    await accounts.tick()
    assert [(one.threshold, one.used) for one in alerts] == [(0.5, 81)]
    await spend(accounts, 1)
    await accounts.tick()
    assert len(alerts) == 1
