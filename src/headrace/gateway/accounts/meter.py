"""A meter: what one limit or budget of one level counts.

There are two kinds. One **held** (budgets, requests at once) keeps what running requests may take
beside what was used; used counts when it is settled, in the window of that moment. So a window's
used and held together never pass the limit but by what an estimate was short. One of a **rate**
(rpm, tpm) counts the estimate at once, in the minute in which the request came; settling takes back
what was too much while that minute still counts, and adds what was too little in the present one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from headrace.gateway.accounts.terms import Level, Terms, UnknownPrice
from headrace.gateway.accounts.window import Window

LimitName = Literal["rpm", "tpm", "concurrency", "budget", "free_rpm", "free_rpd"]
MeterUnit = Literal["nusd", "requests", "tokens", "running"]

_RATE_WINDOW = Window("1m")
_ALL_TIME = Window("total")


class Meter(msgspec.Struct, frozen=True, kw_only=True):
    """A limit or a budget of one level, as the counters know it."""

    id: str
    """The same in every process and after every restart, whatever the amount."""
    level: Level
    """With `name`, the holder of the limit."""
    name: str
    limit_name: LimitName
    kind: Literal["held", "rate"]
    """With `unit`, what is counted, and how."""
    unit: MeterUnit
    amount: int
    """The limit, or raised_to until raised_until_ms."""
    window: Window
    model: str = "*"
    """A glob of the names it counts."""
    thresholds: tuple[float, ...] = ()
    """For a budget."""
    unknown_price: UnknownPrice = "refuse"
    """For a budget."""
    raised_to: int | None = None
    raised_until_ms: int | None = None

    def limit(self, at_ms: int) -> int:
        """The limit in force at a time."""
        if self.raised_to is not None and self.is_raised(at_ms):
            return self.raised_to
        return self.amount

    def is_raised(self, at_ms: int) -> bool:
        """Whether more holds at a time than its amount."""
        return self.raised_until_ms is not None and at_ms < self.raised_until_ms

    def counts(self, model: str) -> bool:
        """Whether requests for this model are counted."""
        return self.model == "*" or fnmatchcase(model, self.model)

    @property
    def is_budget(self) -> bool:
        """Whether what was used is worth keeping over a restart."""
        return self.limit_name == "budget"


def meters_of(level: Level, name: str, terms: Terms) -> Iterator[Meter]:
    """One meter for each limit and budget, those that are cheapest to wait for first."""
    for limits in terms.limits:
        for limit_name, unit, amount in (
            ("concurrency", "running", limits.concurrency),
            ("rpm", "requests", limits.rpm),
            ("tpm", "tokens", limits.tpm),
        ):
            if amount is not None:
                running = limit_name == "concurrency"
                window = _ALL_TIME if running else _RATE_WINDOW
                yield Meter(
                    id=_id(level, name, limit_name, window, limits.model),
                    level=level,
                    name=name,
                    limit_name=limit_name,  # type: ignore[arg-type]
                    kind="held" if running else "rate",
                    unit=unit,  # type: ignore[arg-type]
                    amount=amount,
                    window=window,
                    model=limits.model,
                )
    for budget in terms.budgets:
        window = Window(budget.window, budget.calendar)
        yield Meter(
            id=_id(level, name, budget.unit, window, budget.model),
            level=level,
            name=name,
            limit_name="budget",
            kind="held",
            unit=budget.unit,
            amount=budget.amount,
            window=window,
            model=budget.model,
            thresholds=budget.thresholds,
            unknown_price=budget.unknown_price,
            raised_to=budget.raised_to,
            raised_until_ms=budget.raised_until_ms,
        )


def _id(level: str, name: str, what: str, window: Window, model: str) -> str:
    """Names hold no bar, so no two meters share an id."""
    kind = "calendar" if window.calendar else "rolling"
    return f"{level}|{name}|{what}|{window.name}|{kind}|{model}"


def of_model(meters: Iterable[Meter], model: str) -> list[Meter]:
    """The meters that count requests for a model."""
    return [meter for meter in meters if meter.counts(model)]
