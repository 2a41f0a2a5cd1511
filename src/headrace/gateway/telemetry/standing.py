"""A snapshot of the gateway's state: models, targets, providers and accounts."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.gateway.accounts.accounts import Accounts, AccountsState
from headrace.gateway.routing.router import Router
from headrace.gateway.targets.auth import InTurn
from headrace.gateway.targets.health import State
from headrace.gateway.targets.provider import Provider
from headrace.gateway.targets.target import Target
from headrace.gateway.telemetry.log_status import LogStanding


class TargetStanding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a target."""

    target: str
    usable: bool
    """Whether its breaker and keys would let a request through; a busy target is usable."""
    breaker: State
    in_flight: int
    for_s: float | None = None
    """How long it is not usable, if known."""
    first_token_s: float | None = None
    tokens_per_s: float | None = None
    last_failure: str | None = None
    taken_out: bool = False
    """Whether an administrator took it out of service, until that is undone."""


class ModelStanding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a model."""

    usable: bool
    """Whether one of its targets is usable; fallbacks are models of their own."""
    targets: tuple[TargetStanding, ...]
    variants_out: tuple[str, ...] = ()
    """A/B variants that were taken out because they failed too often."""


class ProviderStanding(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a provider."""

    keys: int
    """Credentials used in turn, 0 if none are needed."""
    resting_keys: int
    """Keys that were refused for all models."""
    connections: int
    """Open connections, busy or idle."""
    resting_connections: int
    """Idle connections."""
    refused: tuple[str, ...] = ()
    """Why keys were refused."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a gateway, by name."""

    ready: bool
    """Whether a model has a usable target; without configured models, a provider a usable key."""
    models: dict[str, ModelStanding]
    providers: dict[str, ProviderStanding]
    accounts: AccountsState | None
    """None if nothing is counted."""
    request_log: LogStanding | None = None
    """None without a request log."""


def standing(
    router: Router,
    providers: Mapping[str, Provider],
    accounts: Accounts | None,
    now_s: float,
    request_log: LogStanding | None = None,
) -> Standing:
    """The current state. `now_s` is a reading of the clock that health uses."""
    models = {}
    for name, route in router.routes.items():
        targets = tuple(_target(target, now_s) for target in route.targets)
        models[name] = ModelStanding(
            usable=any(target.usable for target in targets),
            targets=targets,
            variants_out=() if route.variants is None else route.variants.left_out(),
        )
    if models:
        ready = any(model.usable for model in models.values())
    else:
        ready = any(provider.auth.rests_s(now_s) <= 0 for provider in providers.values())
    return Standing(
        ready=ready,
        models=models,
        providers={name: _provider(provider, now_s) for name, provider in providers.items()},
        accounts=None if accounts is None else accounts.describe(),
        request_log=request_log,
    )


def _target(target: Target, now_s: float) -> TargetStanding:
    health = target.health
    state = health.state(now_s)
    for_s = target.provider.auth.rests_s(now_s, target.model)
    if state == "open" and not health.taken_out:
        for_s = max(for_s, health.closed_for_s(now_s))
    return TargetStanding(
        target=target.name,
        usable=for_s <= 0 and not health.taken_out,
        breaker=state,
        in_flight=health.in_flight,
        for_s=round(for_s, 3) if for_s > 0 else None,
        first_token_s=_rounded(health.first_token_s),
        tokens_per_s=_rounded(health.tokens_per_s),
        last_failure=health.last_failure,
        taken_out=health.taken_out,
    )


def _provider(provider: Provider, now_s: float) -> ProviderStanding:
    auth = provider.auth
    in_turn = auth if isinstance(auth, InTurn) else None
    keys, resting = (0, 0) if in_turn is None else in_turn.count(now_s)
    return ProviderStanding(
        keys=keys,
        resting_keys=resting,
        refused=() if in_turn is None else in_turn.refusals(now_s),
        connections=provider.pool.connections,
        resting_connections=provider.pool.resting,
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
