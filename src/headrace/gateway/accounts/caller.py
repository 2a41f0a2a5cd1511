"""Callers, their demands, and what requests took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec

from headrace.errors import ConfigError, shown
from headrace.gateway.accounts.meter import Meter
from headrace.gateway.accounts.terms import MAX_AMOUNT, DataPolicy, Level, WhenDown


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """A key that sends requests, with the terms that apply to it on the way down from its
    organisation."""

    key_id: str
    key_end: str = ""
    """The key's last characters, for people."""
    label: str = ""
    """The key's name, for people."""
    organisation: str | None = None
    team: str | None = None
    user: str | None = None
    allowed_models: tuple[tuple[str, ...], ...] = ()
    """One list of names and globs for each level that has one; a model must be in all of them."""
    priority: int = 0
    """Lower goes first."""
    tags: tuple[str, ...] = ()
    guardrails: tuple[str, ...] = ()
    data_policy: DataPolicy = DataPolicy()
    when_stores_are_down: WhenDown = "closed"
    meters: tuple[Meter, ...] = ()
    """Meters of all levels, from the organisation down."""

    @property
    def path(self) -> tuple[tuple[Level, str], ...]:
        """Levels and names from the organisation down to the key."""
        named: tuple[tuple[Level, str | None], ...] = (
            ("organisation", self.organisation),
            ("team", self.team),
            ("user", self.user),
            ("key", self.key_id),
        )
        return tuple((level, name) for level, name in named if name is not None)

    def may_use(self, model: str, own_name: str = "", with_target: Sequence[str] = ()) -> bool:
        """Whether every level allows the model, by the name clients ask for.

        own_name: of an alias, the model's: either will do. with_target: of `provider/model`, the
        models with that target: one of them is to be allowed too, but where the name itself is
        listed, or a glob of that provider (`openai/*`): who lists that means what the provider has
        by its own names, whether the file has a model of it or not.
        """
        return all(
            model in names
            or _is_of_provider(names, model)
            or (
                (_is_in(names, model) or (bool(own_name) and _is_in(names, own_name)))
                and (not with_target or any(_is_in(names, one) for one in with_target))
            )
            for names in self.allowed_models
        )


MASTER = Caller(key_id="master")
"""Whoever has the master key."""

ADMIN = Caller(key_id="admin")
"""The admin page."""


def _is_of_provider(names: Sequence[str], model: str) -> bool:
    provider, slash, _ = model.partition("/")
    prefix = provider + slash
    return bool(slash) and any(
        name.startswith(prefix) and fnmatchcase(model, name) for name in names
    )


def _is_in(names: Sequence[str], model: str) -> bool:
    return any(name == model or fnmatchcase(model, name) for name in names)


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a request may take."""

    model: str
    """The model, by the name that the client used."""
    own_name: str = ""
    """For an alias, the model's own name."""
    names: Mapping[str, tuple[str, ...]] | None = None
    """For each model that may answer, the names under which that counts; None where no limit needs
    them."""
    requests: int = 1
    """0 for what a running request may take in addition."""
    input_tokens: int = 0
    most_output_tokens: int = 0
    most_cost_nusd: int | None = None
    """In 1e-9 dollars, at the most expensive target it may reach; None if unknown."""

    def __post_init__(self) -> None:
        _check("requests", self.requests)
        _check("input_tokens", self.input_tokens)
        _check("most_output_tokens", self.most_output_tokens)
        _check("most_cost_nusd", self.most_cost_nusd)


class Actual(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of a request."""

    model: str = ""
    """The model that answered; "" counts for all that might have."""
    requests: int = 1
    input_tokens: int = 0
    output_tokens: int = 0
    cost_nusd: int | None = None
    """None if unknown. Budgets then count what was reserved as used, since nothing shows that it
    was less, or standard_nusd if that is more."""
    standard_nusd: int = 0

    def __post_init__(self) -> None:
        _check("requests", self.requests)
        _check("input_tokens", self.input_tokens)
        _check("output_tokens", self.output_tokens)
        _check("cost_nusd", self.cost_nusd)
        _check("standard_nusd", self.standard_nusd)


def _check(name: str, value: int | None) -> None:
    if value is not None and not 0 <= value <= MAX_AMOUNT:
        raise ConfigError(f"{name}: {shown(value)} is not between 0 and {MAX_AMOUNT}")
