"""Hedging, variants, shadows and engine metrics of a model."""

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
    """A second attempt at another target when the first is slow; give one of after_ms and
    after_percentile."""

    after_ms: Annotated[
        _Ms | None,
        Meta(description="The next target is tried as well if there is no first content by then."),
    ] = None
    after_percentile: Annotated[
        _Percentile | None,
        Meta(
            description="As after_ms, but at this percentile of the model's own times to the first "
            "content; nothing is hedged before enough of them are known."
        ),
    ] = None
    max_hedges: Annotated[
        int,
        Meta(ge=1, le=4, description="Most additional targets, tried one after another."),
        formerly("most"),
    ] = 1
    share: Annotated[
        Share,
        Meta(
            description="Share of the model's requests of the last minute that may be hedged; 1 "
            "for all."
        ),
    ] = 0.05


class VariantSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One variant of an A/B test or a canary."""

    weight: Annotated[float, Meta(ge=0, description="Its relative share of the users; 0: none.")]
    targets: Annotated[
        tuple[TargetSettings, ...], Meta(min_length=1, description="Where it is served.")
    ]


class RollbackSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limit at which a failing variant is taken out; the first variant never is."""

    error_share: Annotated[
        Share,
        Meta(description="How much its share of failed requests may exceed the first variant's."),
    ]
    window_requests: Annotated[
        int,
        Meta(
            ge=5,
            le=10_000,
            description="Number of latest requests that are compared; with fewer nothing is "
            "decided.",
        ),
        formerly("over"),
    ] = 50


class ShadowSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of requests for a target whose answers are discarded."""

    target: Annotated[
        TargetSettings, Meta(description="The `provider/model` that gets the copies.")
    ]
    share: Annotated[
        Share, Meta(description="Share of the model's answered requests that is copied.")
    ] = 1.0
    max_in_flight: Annotated[
        int,
        Meta(ge=1, le=1000, description="Copies at once; others are dropped and counted."),
        formerly("most_in_flight"),
    ] = 4
    timeout_s: Annotated[Seconds, Meta(description="For a copy's whole answer.")] = 60.0


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for how `prefix_aware` and `engine_load` read engines. The weights and the load
    guard are as in the schedulers of llm-d and SGLang."""

    interval_s: Annotated[
        float, Meta(ge=0.05, le=60, description="Between two readings of an engine's /metrics.")
    ] = 1.0
    stale_s: Annotated[float, Meta(ge=0.1, le=600, description="An older reading is not used.")] = (
        5.0
    )
    prefix_weight: Annotated[
        float,
        Meta(
            ge=0,
            le=100,
            description="Weight of the part of the prompt that an engine already has cached.",
        ),
    ] = 3.0
    queue_weight: Annotated[
        float, Meta(ge=0, le=100, description="Weight of the requests that wait there.")
    ] = 2.0
    kv_weight: Annotated[
        float, Meta(ge=0, le=100, description="Weight of the share of its KV cache that is in use.")
    ] = 2.0
    imbalance_requests: Annotated[
        int,
        Meta(
            ge=1,
            description="If the busiest engine has this many more requests than the idlest, and "
            "half as "
            "many again, the idlest is used whatever it has cached of the prompt.",
        ),
    ] = 64
