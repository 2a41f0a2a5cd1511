"""A stateful test of counters against a model that is slow and obvious.

The model keeps every request that ever was, and adds them up anew for each question.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.gateway.accounts import (
    Accounts,
    Actual,
    Budget,
    Counters,
    Demand,
    Group,
    KeyRecord,
    LimitExceededError,
    Limits,
    MemoryCounters,
    Parent,
    Records,
    Reservation,
    Terms,
    secret_of,
)
from headrace.gateway.accounts.meter import Meter
from tests.gateway.accounts.parts import NOON_MS, Clock, accounts_of

ANN, BOB, EVE = (f"hr-key-of-{name}-0000000000000000000" for name in ("ann", "bob", "eve"))
KEYS = (ANN, BOB, EVE)
MODELS = ("big-1", "small")
AMOUNTS = st.integers(min_value=0, max_value=12)
STEPS_MS = st.sampled_from((1, 499, 500, 7_000, 59_999, 60_001, 200_000, 3_600_000, 40_000_000))

RECORDS = Records(
    (
        Group(
            level="organisation",
            name="acme",
            terms=Terms(
                limits=(Limits(rpm=9),),
                budgets=(
                    Budget(amount=60, window="1d", calendar=True),
                    Budget(amount=10**9, window="total"),
                ),
            ),
        ),
        Group(
            level="team",
            name="red",
            parent=Parent("organisation", "acme"),
            terms=Terms(
                limits=(Limits(tpm=60, concurrency=4),),
                budgets=(
                    Budget(amount=45, window="1h"),
                    Budget(amount=20, window="1m", model="big-*"),
                    Budget(amount=10**9, window="total"),
                ),
            ),
        ),
        Group(
            level="user",
            name="ann",
            parent=Parent("team", "red"),
            terms=Terms(budgets=(Budget(amount=12, window="1h", unit="requests", calendar=True),)),
        ),
    ),
    (
        KeyRecord(
            id="ann-1",
            secrets=(secret_of(ANN),),
            parent=Parent("user", "ann"),
            terms=Terms(
                limits=(Limits(concurrency=2, rpm=4, model="big-1"),),
                budgets=(Budget(amount=10**9, window="total"),),
            ),
        ),
        KeyRecord(
            id="bob-1",
            secrets=(secret_of(BOB),),
            parent=Parent("team", "red"),
            terms=Terms(budgets=(Budget(amount=30, window="5m", unit="tokens"),)),
        ),
        KeyRecord(
            id="eve-1",
            secrets=(secret_of(EVE),),
            parent=Parent("organisation", "acme"),
            terms=Terms(limits=(Limits(concurrency=1),)),
        ),
    ),
)


@dataclass(eq=False)
class _Asked:
    """A request as the model remembers it."""

    meters: tuple[Meter, ...]
    wanted: dict[str, int]
    came_ms: int
    reservation: Reservation
    took: dict[str, int] | None = None
    ended_ms: int = 0


@dataclass
class Model:
    """Every request that was let through."""

    asked: list[_Asked] = field(default_factory=list)

    def used(self, meter: Meter, at_ms: int) -> int:
        window = meter.window
        first = window.bucket(at_ms) - window.span
        total = 0
        for one in self.asked:
            if meter not in one.meters or meter.unit == "running":
                continue
            came, ended = window.bucket(one.came_ms), window.bucket(one.ended_ms)
            if meter.kind == "held":
                if one.took is not None and ended >= first:
                    total += one.took[meter.unit]
                continue
            wanted = one.wanted[meter.unit]
            took = wanted if one.took is None else one.took[meter.unit]
            if came >= first:
                total += min(took, wanted)
            if took > wanted and ended >= first:
                total += took - wanted
        return total

    def held(self, meter: Meter) -> int:
        if meter.kind == "rate":
            return 0
        return sum(
            one.wanted[meter.unit] for one in self.asked if one.took is None and meter in one.meters
        )


class AccountsMachine(RuleBasedStateMachine):
    """Random requests of three keys; `make_counters` is what is tested."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = Clock(NOON_MS)
        self.model = Model()
        self.overshot = 0
        self.accounts: Accounts

    def make_counters(self) -> Counters:
        return MemoryCounters()

    @initialize(seed=st.integers(min_value=0, max_value=2**32))
    def begin(self, seed: int) -> None:
        self.counters = self.runner.run(self._made())
        self.accounts = accounts_of(RECORDS, self.clock, counters=self.counters, seed=seed)

    async def _made(self) -> Counters:
        return self.make_counters()

    def teardown(self) -> None:
        if hasattr(self, "accounts"):
            self.runner.run(self.accounts.close())
        self.runner.close()

    @rule(
        key=st.sampled_from(KEYS),
        model=st.sampled_from(MODELS),
        cost=AMOUNTS,
        tokens=AMOUNTS,
    )
    def reserve(self, key: str, model: str, cost: int, tokens: int) -> None:
        caller = self.accounts.caller(key)
        meters = tuple(meter for meter in caller.meters if meter.counts(model))
        wanted = {"nusd": cost, "tokens": 2 * tokens, "requests": 1, "running": 1}
        at_ms = self.clock.ms
        fits = all(
            self.model.used(meter, at_ms) + self.model.held(meter) + wanted[meter.unit]
            <= meter.amount
            for meter in meters
        )
        demand = Demand(
            model=model, input_tokens=tokens, most_output_tokens=tokens, most_cost_nusd=cost
        )
        try:
            reservation = self.runner.run(self.accounts.reserve(caller, demand))
        except LimitExceededError as error:
            assert not fits
            self.check_refusal(error, wanted)
            return
        assert fits
        self.model.asked.append(_Asked(meters, wanted, at_ms, reservation))

    def check_refusal(self, error: LimitExceededError, wanted: dict[str, int]) -> None:
        """What the error says is so, and it is free when the error says, if nothing else comes."""
        at_ms = self.clock.ms
        meter = next(
            meter
            for meter in self.accounts.roster.meters().values()
            if (meter.level, meter.name, meter.limit_name, meter.window, meter.model, meter.unit)
            == (error.level, error.name, error.limit_name, error.window, error.model, error.unit)
        )
        assert error.used == self.model.used(meter, at_ms)
        assert error.reserved == self.model.held(meter)
        assert error.wanted == wanted[meter.unit]
        free_at_ms = error.resets_at_ms
        if free_at_ms is not None:
            room = meter.amount - self.model.held(meter) - error.wanted
            assert free_at_ms > at_ms
            assert self.model.used(meter, free_at_ms) <= room
            assert self.model.used(meter, free_at_ms - 1) > room

    @rule(data=st.data(), cost=AMOUNTS, tokens=AMOUNTS, over=st.booleans())
    def settle(self, data: Any, cost: int, tokens: int, over: bool) -> None:
        one = self._draw(data, ended=False)
        if one is None:
            return
        if not over:
            cost = min(cost, one.wanted["nusd"])
            tokens = min(tokens, one.wanted["tokens"])
        self.overshot += max(0, cost - one.wanted["nusd"])
        self.overshot += max(0, tokens - one.wanted["tokens"])
        actual = Actual(cost_nusd=cost, output_tokens=tokens)
        assert self.runner.run(one.reservation.settle(actual)).first
        one.took = {"nusd": cost, "tokens": tokens, "requests": 1, "running": 0}
        one.ended_ms = self.clock.ms

    @rule(data=st.data())
    def release(self, data: Any) -> None:
        one = self._draw(data, ended=False)
        if one is None:
            return
        assert self.runner.run(one.reservation.release()).first
        one.took = {"nusd": 0, "tokens": 0, "requests": 0, "running": 0}
        one.ended_ms = self.clock.ms

    @rule(data=st.data())
    def end_again(self, data: Any) -> None:
        one = self._draw(data, ended=True)
        if one is not None:
            again = one.reservation.settle(Actual(cost_nusd=5, output_tokens=5))
            assert not self.runner.run(again).first

    @rule(step_ms=STEPS_MS)
    def wait(self, step_ms: int) -> None:
        self.clock.step(step_ms)
        self.runner.run(self.accounts.tick())

    def _draw(self, data: Any, *, ended: bool) -> _Asked | None:
        there = [one for one in self.model.asked if (one.took is not None) is ended]
        return data.draw(st.sampled_from(there)) if there else None

    @invariant()
    def counters_stand_as_the_model(self) -> None:
        if not hasattr(self, "accounts"):
            return
        at_ms = self.clock.ms
        meters = list(self.accounts.roster.meters().values())
        readings = self.runner.run(self.counters.read(meters, at_ms=at_ms))
        for meter, used, held in readings:
            assert used == self.model.used(meter, at_ms), meter.id
            assert held == self.model.held(meter) >= 0, meter.id
            assert used + held <= meter.amount + self.overshot, meter.id

    @invariant()
    def the_sum_of_what_was_settled_was_spent(self) -> None:
        if not hasattr(self, "accounts"):
            return
        for level, name in (("organisation", "acme"), ("team", "red"), ("key", "ann-1")):
            total = sum(
                one.took["nusd"]
                for one in self.model.asked
                if one.took is not None
                and any((meter.level, meter.name) == (level, name) for meter in one.meters)
            )
            readings = self.runner.run(self.accounts.readings(level, name))  # type: ignore[arg-type]
            spent = next(
                r.used for r in readings if r.meter.is_budget and r.meter.window.name == "total"
            )
            assert spent == total
