"""The combined state of all workers."""

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
    """Combine the workers' states with the parent's `accounts`. A target is usable if one of the
    workers may use it; its breaker is the worst of theirs, as each worker has its own."""
    names = dict.fromkeys(chain.from_iterable(standing.models for standing in standings))
    models = {
        name: _model([standing.models[name] for standing in standings if name in standing.models])
        for name in names
    }
    providers = dict.fromkeys(chain.from_iterable(standing.providers for standing in standings))
    return Standing(
        ready=any(standing.ready for standing in standings),
        models=models,
        providers={
            name: _provider(
                [standing.providers[name] for standing in standings if name in standing.providers]
            )
            for name in providers
        },
        accounts=_accounts(
            [standing.accounts for standing in standings if standing.accounts], accounts
        ),
        request_log=together(
            [standing.request_log for standing in standings if standing.request_log]
        ),
    )


def _model(several: Sequence[ModelStanding]) -> ModelStanding:
    by_target: dict[str, list[TargetStanding]] = {}
    for target in chain.from_iterable(model.targets for model in several):
        by_target.setdefault(target.target, []).append(target)
    return ModelStanding(
        usable=any(model.usable for model in several),
        targets=tuple(_target(targets) for targets in by_target.values()),
        variants_out=tuple(dict.fromkeys(name for model in several for name in model.variants_out)),
    )


def _target(several: Sequence[TargetStanding]) -> TargetStanding:
    """Times are those of the slowest worker, as each has its own mean."""
    worst = max(several, key=lambda target: _SEVERITY[target.breaker])
    usable = any(target.usable for target in several)
    waits = [target.for_s for target in several if target.for_s is not None]
    firsts = [target.first_token_s for target in several if target.first_token_s is not None]
    rates = [target.tokens_per_s for target in several if target.tokens_per_s is not None]
    return msgspec.structs.replace(
        worst,
        usable=usable,
        in_flight=sum(target.in_flight for target in several),
        for_s=None if usable else min(waits, default=None),
        first_token_s=max(firsts, default=None),
        tokens_per_s=min(rates, default=None),
    )


def _provider(several: Sequence[ProviderStanding]) -> ProviderStanding:
    return ProviderStanding(
        keys=max(provider.keys for provider in several),
        resting_keys=max(provider.resting_keys for provider in several),
        connections=sum(provider.connections for provider in several),
        resting_connections=sum(provider.resting_connections for provider in several),
        refused=tuple(dict.fromkeys(chain.from_iterable(provider.refused for provider in several))),
    )


def _accounts(
    several: Sequence[AccountsState], parent: AccountsState | None
) -> AccountsState | None:
    if not several:
        return None
    counters = [state.counters for state in several]
    whole = (*several, *([] if parent is None else [parent]))
    return AccountsState(
        counters=CountersState(
            reach=counters[0].reach,
            reachable=all(counter.reachable for counter in counters),
            unwritten=sum(counter.unwritten for counter in counters),
            problem=next((counter.problem for counter in counters if counter.problem), ""),
        ),
        keys=max(state.keys for state in several),
        has_store=several[0].has_store,
        unsaved=sum(state.unsaved for state in whole),
        problem=next((state.problem for state in whole if state.problem), None),
    )
