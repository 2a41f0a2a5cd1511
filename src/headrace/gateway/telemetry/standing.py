"""How the gateway stands: its models, targets, providers and accounts, at one moment."""

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
    """usable: whether its breaker and its provider's keys would let a request through; one that has
    as many requests as it may have is busy and usable. for_s: until it is, where that is known.
    taken_out: by an administrator, so that it is open until that is undone."""

    target: str
    usable: bool
    breaker: State
    in_flight: int
    for_s: float | None = None
    first_token_s: float | None = None
    tokens_per_s: float | None = None
    last_failure: str | None = None
    taken_out: bool = False


class ModelStanding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """usable: whether one of its targets is; its fallbacks are models of their own. variants_out:
    sides of its A/B test that were taken out, which failed too often."""

    usable: bool
    targets: tuple[TargetStanding, ...]
    variants_out: tuple[str, ...] = ()


class ProviderStanding(msgspec.Struct, frozen=True, kw_only=True):
    """keys: credentials used in turn, 0 where none are needed; resting ones were refused for all
    models, and refused has why. connections: at work and at rest."""

    keys: int
    resting_keys: int
    connections: int
    resting_connections: int
    refused: tuple[str, ...] = ()


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """By name. ready: whether a model has a usable target, or, in a file without models, a
    provider a usable key. accounts: None where nobody is counted. request_log: None where none is
    kept."""

    ready: bool
    models: dict[str, ModelStanding]
    providers: dict[str, ProviderStanding]
    accounts: AccountsState | None
    request_log: LogStanding | None = None


def standing(
    router: Router,
    providers: Mapping[str, Provider],
    accounts: Accounts | None,
    now_s: float,
    request_log: LogStanding | None = None,
) -> Standing:
    """now_s: of the clock that targets are told times of."""
    models = {}
    for name, route in router.routes.items():
        targets = tuple(_target(one, now_s) for one in route.targets)
        models[name] = ModelStanding(
            usable=any(one.usable for one in targets),
            targets=targets,
            variants_out=() if route.variants is None else route.variants.left_out(),
        )
    if models:
        ready = any(one.usable for one in models.values())
    else:
        ready = any(one.auth.rests_s(now_s) <= 0 for one in providers.values())
    return Standing(
        ready=ready,
        models=models,
        providers={name: _provider(one, now_s) for name, one in providers.items()},
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
