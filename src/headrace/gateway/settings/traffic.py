"""What becomes of a model's traffic: hedged, split between variants, copied to a shadow."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.config.nested import formerly
from headrace.gateway.settings.reliability import Seconds, Share
from headrace.gateway.settings.target import TargetSettings

AssignBy = Literal["user", "session", "key", "request"]
_Ms = Annotated[float, Meta(gt=0, le=3_600_000)]
_Percentile = Annotated[float, Meta(ge=50, le=99.9)]


class HedgeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A second target is asked where the first is slow; one of after_ms and after_percentile."""

    after_ms: Annotated[
        _Ms | None,
        Meta(description="The next target is asked too if there is no first content by then."),
    ] = None
    after_percentile: Annotated[
        _Percentile | None,
        Meta(
            description="The same, after this percentile of the model's own times to the first "
            "content; nothing is hedged before enough of them are known."
        ),
    ] = None
    max_hedges: Annotated[
        int,
        Meta(ge=1, le=4, description="Most targets that are asked besides, one after another."),
        formerly("most"),
    ] = 1
    share: Annotated[
        Share,
        Meta(description="Of the model's requests of the last minute, so many may be hedged; 1 for "
             "all."),
    ] = 0.05  # fmt: skip


class VariantSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One side of an A/B test or a canary."""

    weight: Annotated[
        float, Meta(ge=0, description="Its part of the users, relative; 0: nobody is given to it.")
    ]
    targets: Annotated[tuple[TargetSettings, ...], Meta(min_length=1, description="Who serves it.")]


class RollbackSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When a variant that fails too often is taken out; the first of the file never is."""

    error_share: Annotated[
        Share,
        Meta(description="By how much its share of failed requests may exceed the first's."),
    ]
    window_requests: Annotated[
        int,
        Meta(ge=5, le=10_000, description="Of so many of its last requests; fewer say nothing."),
        formerly("over"),
    ] = 50


class ShadowSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of requests for a target whose answers nobody waits for."""

    target: Annotated[TargetSettings, Meta(description="`provider/model` that is sent them.")]
    share: Annotated[Share, Meta(description="Of the model's answered requests.")] = 1.0
    max_in_flight: Annotated[
        int,
        Meta(ge=1, le=1000, description="Copies at once; others are dropped and counted."),
        formerly("most_in_flight"),
    ] = 4
    timeout_s: Annotated[Seconds, Meta(description="For a copy's whole answer.")] = 60.0


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How `prefix_aware` and `engine_load` read engines. The weights and the load guard are as in
    the schedulers of llm-d and SGLang."""

    interval_s: Annotated[
        float, Meta(ge=0.05, le=60, description="Between two readings of an engine's /metrics.")
    ] = 1.0
    stale_s: Annotated[
        float, Meta(ge=0.1, le=600, description="A reading that is older is not used.")
    ] = 5.0
    prefix_weight: Annotated[
        float, Meta(ge=0, le=100, description="Of what an engine has of the prompt already.")
    ] = 3.0
    queue_weight: Annotated[
        float, Meta(ge=0, le=100, description="Of requests that wait there.")
    ] = 2.0
    kv_weight: Annotated[float, Meta(ge=0, le=100, description="Of its KV cache in use.")] = 2.0
    imbalance_requests: Annotated[
        int, Meta(ge=1, description="Where the busiest engine has so many more requests than the "
                  "idlest, and half as many again, the idlest is asked whatever it has of the "
                  "prompt."),
    ] = 64  # fmt: skip
