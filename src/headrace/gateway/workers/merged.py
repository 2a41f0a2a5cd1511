"""How workers stand together, and what their processes take."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import msgspec

from headrace.gateway.accounts.accounts import AccountsState
from headrace.gateway.accounts.counters import CountersState
from headrace.gateway.telemetry.log_status import together
from headrace.gateway.telemetry.standing import (
    ModelStanding,
    ProviderStanding,
    Standing,
    TargetStanding,
)

_SEVERITY = {"closed": 0, "probing": 1, "open": 2}


def merged(standings: Sequence[Standing], accounts: AccountsState | None) -> Standing:
    """accounts: the parent's, which keeps what workers do not. A target is usable if one of the
    workers may ask it; its breaker is the worst of theirs, as each worker has its own."""
    names = dict.fromkeys(chain.from_iterable(one.models for one in standings))
    models = {
        name: _model([one.models[name] for one in standings if name in one.models])
        for name in names
    }
    providers = dict.fromkeys(chain.from_iterable(one.providers for one in standings))
    return Standing(
        ready=any(one.ready for one in standings),
        models=models,
        providers={
            name: _provider([one.providers[name] for one in standings if name in one.providers])
            for name in providers
        },
        accounts=_accounts([one.accounts for one in standings if one.accounts], accounts),
        request_log=together([one.request_log for one in standings if one.request_log]),
    )


def _model(several: Sequence[ModelStanding]) -> ModelStanding:
    by_target: dict[str, list[TargetStanding]] = {}
    for target in chain.from_iterable(one.targets for one in several):
        by_target.setdefault(target.target, []).append(target)
    return ModelStanding(
        usable=any(one.usable for one in several),
        targets=tuple(_target(ones) for ones in by_target.values()),
        variants_out=tuple(dict.fromkeys(name for one in several for name in one.variants_out)),
    )


def _target(several: Sequence[TargetStanding]) -> TargetStanding:
    """Times are of the worker that was slowest, as each has its own mean."""
    worst = max(several, key=lambda one: _SEVERITY[one.breaker])
    usable = any(one.usable for one in several)
    waits = [one.for_s for one in several if one.for_s is not None]
    firsts = [one.first_token_s for one in several if one.first_token_s is not None]
    rates = [one.tokens_per_s for one in several if one.tokens_per_s is not None]
    return msgspec.structs.replace(
        worst,
        usable=usable,
        in_flight=sum(one.in_flight for one in several),
        for_s=None if usable else min(waits, default=None),
        first_token_s=max(firsts, default=None),
        tokens_per_s=min(rates, default=None),
    )


def _provider(several: Sequence[ProviderStanding]) -> ProviderStanding:
    return ProviderStanding(
        keys=max(one.keys for one in several),
        resting_keys=max(one.resting_keys for one in several),
        connections=sum(one.connections for one in several),
        resting_connections=sum(one.resting_connections for one in several),
        refused=tuple(dict.fromkeys(chain.from_iterable(one.refused for one in several))),
    )


def _accounts(
    several: Sequence[AccountsState], parent: AccountsState | None
) -> AccountsState | None:
    if not several:
        return None
    counters = [one.counters for one in several]
    whole = (*several, *([] if parent is None else [parent]))
    return AccountsState(
        counters=CountersState(
            reach=counters[0].reach,
            reachable=all(one.reachable for one in counters),
            unwritten=sum(one.unwritten for one in counters),
            problem=next((one.problem for one in counters if one.problem), ""),
        ),
        keys=max(one.keys for one in several),
        has_store=several[0].has_store,
        unsaved=sum(one.unsaved for one in whole),
        problem=next((one.problem for one in whole if one.problem), None),
    )
