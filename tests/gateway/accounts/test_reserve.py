"""Reserving and settling in one process: all levels or none, exactly, and errors that explain."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from headrace.errors import ConfigError
from headrace.gateway.accounts import (
    Budget,
    LimitExceededError,
    Limits,
    MemoryCounters,
    ModelNotAllowedError,
    Reservation,
    Settled,
    Terms,
    UnknownPriceError,
)
from tests.gateway.accounts.parts import (
    KEY,
    NOON_MS,
    Clock,
    KeptAccounts,
    accounts_of,
    actual,
    budget,
    demand,
    hierarchy,
    limits,
    standing,
)

DAY_MS = 86_400_000


async def reserve(accounts: KeptAccounts, cost: int | None = 0, **fields: Any) -> Reservation:
    reservation = await accounts.reserve(accounts.caller(KEY), demand(cost, **fields))
    accounts.kept.append(reservation)
    return reservation


async def refused(
    accounts: KeptAccounts, cost: int | None = 0, **fields: Any
) -> LimitExceededError:
    with pytest.raises(LimitExceededError) as caught:
        await reserve(accounts, cost, **fields)
    return caught.value


async def test_ten_of_two_hundred_pass_a_budget_of_ten() -> None:
    counters = MemoryCounters()
    accounts = accounts_of(hierarchy(team=budget(10, unit="requests")), counters=counters)
    caller = accounts.caller(KEY)

    async def one() -> bool:
        try:
            reservation = await accounts.reserve(caller, demand())
        except LimitExceededError:
            return False
        await asyncio.sleep(0)
        await reservation.settle(actual())
        return True

    assert sum(await asyncio.gather(*(one() for _ in range(200)))) == 10
    assert counters._open == {}
    assert await standing(accounts, "team", "red") == [(10, 0)]


async def test_a_request_passes_at_all_levels_or_takes_nothing() -> None:
    accounts = accounts_of(
        hierarchy(organisation=budget(100), team=budget(50), user=budget(70), key=budget(200))
    )
    error = await refused(accounts, 60)
    assert (error.level, error.name) == ("team", "red")
    for level, name in (("organisation", "acme"), ("team", "red"), ("user", "ann"), ("key", "k")):
        assert await standing(accounts, level, name) == [(0, 0)]
    await reserve(accounts, 50)


async def test_what_is_settled_is_used_and_the_rest_comes_back() -> None:
    accounts = accounts_of(hierarchy(key=budget(100)))
    first = await reserve(accounts, 80)
    assert await standing(accounts, "key", "k") == [(0, 80)]
    await refused(accounts, 21)
    assert await first.settle(actual(30)) == Settled(first=True, counted=True)
    assert await standing(accounts, "key", "k") == [(30, 0)]
    second = await reserve(accounts, 70)
    await second.release()
    assert await standing(accounts, "key", "k") == [(30, 0)]


async def test_a_reservation_ends_once() -> None:
    accounts = accounts_of(hierarchy(key=budget(100)))
    reservation = await reserve(accounts, 80)
    assert reservation.is_open
    await reservation.settle(actual(30))
    assert not reservation.is_open
    for again in (reservation.settle(actual(50)), reservation.release()):
        assert await again == Settled(first=False, counted=False)
    assert await standing(accounts, "key", "k") == [(30, 0)]


async def test_what_took_more_than_reserved_counts_in_full() -> None:
    """The budget is overshot by what the estimate was short, and not by more."""
    accounts = accounts_of(hierarchy(key=budget(100)))
    reservation = await reserve(accounts, 60)
    await (await reserve(accounts, 40)).settle(actual(40))
    await reservation.settle(actual(75))
    assert await standing(accounts, "key", "k") == [(115, 0)]
    error = await refused(accounts, 1)
    assert (error.used, error.reserved, error.limit, error.wanted) == (115, 0, 100, 1)


@pytest.mark.long
async def test_a_forgotten_reservation_comes_back() -> None:
    accounts = accounts_of(hierarchy(key=Terms(limits=(Limits(concurrency=1),))))
    reservation = await accounts.reserve(accounts.caller(KEY), demand())
    await refused(accounts)
    del reservation
    gc.collect()
    await (await reserve(accounts)).release()


async def test_a_cancelled_task_gives_back() -> None:
    accounts = accounts_of(hierarchy(key=limits(concurrency=3)))

    async def work() -> None:
        reservation = await reserve(accounts)
        try:
            await asyncio.sleep(3600)
        finally:
            await reservation.release()

    async def careless() -> None:
        _reservation = await accounts.reserve(accounts.caller(KEY), demand())
        await asyncio.sleep(3600)

    tasks = [asyncio.create_task(work()), asyncio.create_task(careless())]
    await asyncio.sleep(0)
    assert await standing(accounts, "key", "k") == [(0, 2)]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    del tasks, task
    await asyncio.sleep(0)
    gc.collect()
    await accounts.tick()
    assert await standing(accounts, "key", "k") == [(0, 0)]


async def test_requests_in_any_minute() -> None:
    clock = Clock()
    accounts = accounts_of(hierarchy(key=limits(rpm=3)), clock)
    for _ in range(3):
        await (await reserve(accounts)).settle(actual())
        clock.step(10_000)
    error = await refused(accounts)
    assert (error.limit_name, error.limit, error.used) == ("rpm", 3, 3)
    assert error.retry_after_s == pytest.approx(30.5)
    assert error.resets_at_ms == clock.ms + 30_500
    clock.step(30_499)
    await refused(accounts)
    clock.step(1)
    await reserve(accounts)
    await refused(accounts)


async def test_a_released_request_does_not_count_towards_rpm() -> None:
    accounts = accounts_of(hierarchy(key=limits(rpm=1)))
    await (await reserve(accounts)).release()
    await (await reserve(accounts)).settle(actual())
    await refused(accounts)


async def test_tokens_are_taken_by_the_estimate_and_corrected() -> None:
    clock = Clock()
    accounts = accounts_of(hierarchy(key=limits(tpm=1000)), clock)
    first = await reserve(accounts, tokens=800, input_tokens=100)
    assert (await refused(accounts, tokens=101)).used == 900
    await first.settle(actual(tokens=50, input_tokens=100))
    assert await standing(accounts, "key", "k") == [(150, 0)]
    second = await reserve(accounts, tokens=850)
    clock.step(61_000)
    # The minute it was taken in is over: nothing to give back, but what was more is used now.
    await second.settle(actual(tokens=900))
    assert await standing(accounts, "key", "k") == [(50, 0)]


async def test_requests_at_once() -> None:
    accounts = accounts_of(hierarchy(organisation=limits(concurrency=2)))
    first = await reserve(accounts)
    await reserve(accounts)
    error = await refused(accounts)
    assert (error.limit_name, error.reserved, error.retry_after_s) == ("concurrency", 2, None)
    await first.settle(actual())
    await reserve(accounts)


async def test_limits_of_a_model_count_that_model() -> None:
    terms = Terms(
        limits=(Limits(rpm=1, model="big-*"), Limits(rpm=2)),
        budgets=(Budget(amount=5, window="1d", model="big-1"),),
    )
    accounts = accounts_of(hierarchy(key=terms))
    await reserve(accounts, 5, model="big-1")
    assert (await refused(accounts, 0, model="big-2")).model == "big-*"
    await reserve(accounts, 100, model="small")
    assert (await refused(accounts, 0, model="small")).model == "*"


async def test_a_model_that_is_not_allowed() -> None:
    accounts = accounts_of(hierarchy(team=Terms(models=("a-*",))))
    with pytest.raises(ModelNotAllowedError, match="GET /v1/models"):
        await reserve(accounts, model="b")
    await reserve(accounts, model="a-1")


async def test_an_unknown_price_is_refused_unless_the_budget_says_otherwise() -> None:
    with pytest.raises(UnknownPriceError, match="unknown_price"):
        await reserve(accounts_of(hierarchy(team=budget(100))), None)
    accounts = accounts_of(hierarchy(team=budget(100, unknown_price="allow")))
    reservation = await reserve(accounts, None)
    await reservation.settle(actual(None))
    assert await standing(accounts, "team", "red") == [(0, 0)]
    # The price may be known afterwards; then it counts, and a spent budget takes no more.
    await (await reserve(accounts, None)).settle(actual(100))
    await refused(accounts, None)
    # Budgets of requests and tokens need no price.
    await reserve(accounts_of(hierarchy(team=budget(1, unit="requests"))), None)


async def test_a_cost_nobody_knows_counts_as_what_was_reserved() -> None:
    accounts = accounts_of(hierarchy(key=budget(100)))
    await (await reserve(accounts, 60)).settle(actual(None))
    assert await standing(accounts, "key", "k") == [(60, 0)]


async def test_a_spent_budget_takes_what_costs_nothing() -> None:
    accounts = accounts_of(hierarchy(key=budget(10)))
    await (await reserve(accounts, 10)).settle(actual(10))
    await reserve(accounts, 0)
    await refused(accounts, 1)


async def test_a_calendar_budget_comes_back_at_midnight() -> None:
    clock = Clock()
    accounts = accounts_of(hierarchy(key=budget(10, calendar=True)), clock)
    await (await reserve(accounts, 10)).settle(actual(10))
    error = await refused(accounts, 1)
    assert error.resets_at_ms == NOON_MS + DAY_MS // 2
    assert error.retry_after_s == 43_200
    assert "in this day (UTC)" in str(error) and "at 2026-03-11 00:00:00 UTC" in str(error)
    clock.step(DAY_MS // 2)
    await reserve(accounts, 10)


async def test_what_runs_over_midnight_is_held_in_both_days_and_used_in_the_second() -> None:
    clock = Clock(NOON_MS + DAY_MS // 2 - 1)
    accounts = accounts_of(hierarchy(key=budget(10, calendar=True)), clock)
    reservation = await reserve(accounts, 8)
    clock.step(1)
    await refused(accounts, 3)
    await reservation.settle(actual(8))
    assert await standing(accounts, "key", "k") == [(8, 0)]
    clock.step(DAY_MS)
    assert await standing(accounts, "key", "k") == [(0, 0)]


async def test_a_rolling_budget_comes_back_bit_by_bit() -> None:
    clock = Clock()
    accounts = accounts_of(hierarchy(key=budget(10)), clock)
    await (await reserve(accounts, 4)).settle(actual(4))
    clock.step(DAY_MS // 2)
    await (await reserve(accounts, 6)).settle(actual(6))
    error = await refused(accounts, 3)
    assert error.resets_at_ms == NOON_MS + DAY_MS + DAY_MS // 120
    clock.ms = error.resets_at_ms - 1
    await refused(accounts, 1)
    clock.step(1)
    await refused(accounts, 5)
    await reserve(accounts, 4)


async def test_a_budget_for_all_time_does_not_come_back() -> None:
    clock = Clock()
    accounts = accounts_of(hierarchy(key=budget(10, "total")), clock)
    await (await reserve(accounts, 10)).settle(actual(10))
    clock.step(10**12)
    error = await refused(accounts, 1)
    assert error.retry_after_s is None and "administrator" in str(error)


async def test_a_raise_holds_until_its_date() -> None:
    clock = Clock()
    terms = budget(10, "1M", calendar=True, raised_to=30, raised_until_ms=NOON_MS + 1000)
    accounts = accounts_of(hierarchy(key=terms), clock)
    reservation = await reserve(accounts, 30)
    assert (await refused(accounts, 1)).limit == 30
    clock.step(1000)
    assert (await refused(accounts, 1)).limit == 10
    await reservation.settle(actual(9))
    await reserve(accounts, 1)


async def test_an_amount_may_change_and_what_was_used_stays() -> None:
    accounts = accounts_of(hierarchy(key=budget(10)))
    await (await reserve(accounts, 10)).settle(actual(10))
    accounts.reconfigure(hierarchy(key=budget(15)))
    assert (await refused(accounts, 6)).used == 10
    await reserve(accounts, 5)


async def test_an_error_names_level_limit_numbers_and_remedy() -> None:
    accounts = accounts_of(hierarchy(user=budget(2_000_000_000, calendar=True)))
    reservation = await reserve(accounts, 1_500_000_000)
    error = await refused(accounts, 600_000_001)
    assert str(error) == (
        "user 'ann': budget of $2.00 in this day (UTC): $0.00 used, $1.50 reserved by running "
        "requests, $0.600000001 wanted; try again when running requests have ended"
    )
    await reservation.release()
    error = await refused(accounts, 2_000_000_001)
    assert "one request needs more than the whole limit" in str(error)
    assert error.retry_after_s is None


async def test_of_several_limits_the_one_that_takes_longest_is_told() -> None:
    terms = Terms(limits=(Limits(rpm=1, concurrency=1),), budgets=(Budget(amount=1, window="1h"),))
    accounts = accounts_of(hierarchy(key=terms))
    await (await reserve(accounts, 1)).settle(actual(1))
    assert (await refused(accounts, 1)).limit_name == "budget"


async def test_a_caller_without_limits_needs_no_counters() -> None:
    accounts = accounts_of(hierarchy())
    reservation = await reserve(accounts, None)
    assert (await reservation.settle(actual(None))).first
    assert not (await reservation.settle(actual(None))).first


async def test_a_clock_set_back_loses_nothing() -> None:
    clock = Clock()
    accounts = accounts_of(hierarchy(key=budget(10, calendar=True)), clock)
    await (await reserve(accounts, 4)).settle(actual(4))
    clock.step(-2 * DAY_MS)
    await (await reserve(accounts, 4)).settle(actual(4))
    assert await standing(accounts, "key", "k") == [(8, 0)]
    await refused(accounts, 3)


def test_amounts_are_checked() -> None:
    for field in ("input_tokens", "most_output_tokens", "requests"):
        with pytest.raises(ConfigError, match=field):
            demand(0, **{field: -1}) if field != "most_output_tokens" else demand(0, tokens=-1)
    with pytest.raises(ConfigError, match="cost_nusd"):
        actual(2**61)


def test_it_says_that_limits_hold_per_process() -> None:
    state = accounts_of(hierarchy()).describe()
    assert state.counters.reach == "per process"
    assert (state.keys, state.has_store, state.unsaved, state.problem) == (1, False, 0, None)
