"""The terms of an organisation, team, user or key: models, limits, budgets and policies.

Every level counts: all limits and budgets from the organisation down to the key need room, and each
list of models must allow the model.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.errors import ConfigError, shown
from headrace.gateway.accounts.window import WindowName

# An address is above nobody: it stands for callers without a key, and for free requests.
Level = Literal["organisation", "team", "user", "key", "address"]
Unit = Literal["nusd", "requests", "tokens"]
WhenDown = Literal["open", "closed"]
UnknownPrice = Literal["refuse", "allow"]

# What is counted has to fit into 64 bits in every store, sums included.
MAX_AMOUNT = 2**60
DEFAULT_THRESHOLDS = (0.5, 0.85, 0.95, 1.0)


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The most to spend per window; what running requests may yet cost is reserved in it."""

    amount: int
    """In `unit`; nusd is 1e-9 dollars."""
    window: WindowName
    unit: Unit = "nusd"
    calendar: bool = False
    model: str = "*"
    """A name or glob; other models do not count."""
    thresholds: tuple[float, ...] = DEFAULT_THRESHOLDS
    """Shares of the limit at which an alert is sent."""
    unknown_price: UnknownPrice = "refuse"
    """What happens to a request of unknown price, if the unit is nusd."""
    raised_to: int | None = None
    """A higher amount, in force until raised_until_ms."""
    raised_until_ms: int | None = None

    def __post_init__(self) -> None:
        _check_amount("amount", self.amount, least=0)
        if (self.raised_to is None) != (self.raised_until_ms is None):
            raise ConfigError("raised_to and raised_until_ms belong together; give both or neither")
        if self.raised_to is not None:
            _check_amount("raised_to", self.raised_to, least=self.amount)
        for threshold in self.thresholds:
            if not 0 < threshold <= 1:
                raise ConfigError(
                    f"thresholds: {shown(threshold)} is not a share of the budget; each must be "
                    "above 0 and at most 1"
                )
        if not self.model:
            raise ConfigError('model: "" matches nothing; use "*" for every model')


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rate limits: requests and tokens in any 60 seconds, and requests at the same time; None for
    no limit."""

    rpm: int | None = None
    tpm: int | None = None
    concurrency: int | None = None
    model: str = "*"
    """A name or glob, as for a budget."""

    def __post_init__(self) -> None:
        for name in ("rpm", "tpm", "concurrency"):
            value = getattr(self, name)
            if value is not None:
                _check_amount(name, value, least=0)
        if not self.model:
            raise ConfigError('model: "" matches nothing; use "*" for every model')


class DataPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Restrictions on what providers may do with requests."""

    data_collection: Literal["allow", "deny"] = "allow"
    zero_retention: bool = False
    regions: tuple[str, ...] | None = None
    """Where requests may be served; None: anywhere."""

    def with_(self, other: DataPolicy) -> DataPolicy:
        """The stricter of both, point by point."""
        regions = self.regions if other.regions is None else other.regions
        if self.regions is not None and other.regions is not None:
            regions = tuple(region for region in self.regions if region in other.regions)
        denied = "deny" in (self.data_collection, other.data_collection)
        return DataPolicy(
            data_collection="deny" if denied else "allow",
            zero_retention=self.zero_retention or other.zero_retention,
            regions=regions,
        )


class Terms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rights and limits of one level."""

    models: tuple[str, ...] = ()
    """Names and globs, () for all."""
    limits: tuple[Limits, ...] = ()
    budgets: tuple[Budget, ...] = ()
    priority: int | None = None
    """None: that of the level above, or 0."""
    tags: tuple[str, ...] = ()
    guardrails: tuple[str, ...] = ()
    """Names."""
    data_policy: DataPolicy = DataPolicy()
    when_stores_are_down: WhenDown | None = None
    """None: that of the level above, or "closed"."""

    def __post_init__(self) -> None:
        models = [limits.model for limits in self.limits]
        for model in models:
            if models.count(model) > 1:
                raise ConfigError(f"limits: there are two for model {shown(model)}; merge them")
        kinds = [(b.unit, b.window, b.calendar, b.model) for b in self.budgets]
        for kind in kinds:
            if kinds.count(kind) > 1:
                raise ConfigError(
                    f"budgets: there are two of {kind[0]} per {kind[1]} for model "
                    f"{shown(kind[3])}; keep the smaller one"
                )


NO_TERMS = Terms()


def _check_amount(name: str, value: int, *, least: int) -> None:
    if not least <= value <= MAX_AMOUNT:
        raise ConfigError(f"{name}: {shown(value)} is not between {least} and {MAX_AMOUNT}")
