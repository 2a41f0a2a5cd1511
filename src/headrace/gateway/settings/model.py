"""The models that clients may request, and the targets that serve them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.gateway.settings.cascade import CascadeSettings, PipelineSettings
from headrace.gateway.settings.complexity import ChooseSettings
from headrace.gateway.settings.provider import Text
from headrace.gateway.settings.reliability import (
    RetrySettings,
    TimeoutSettings,
)
from headrace.gateway.settings.target import TargetSettings
from headrace.gateway.settings.traffic import (
    AssignBy,
    EngineSettings,
    HedgeSettings,
    RollbackSettings,
    ShadowSettings,
    VariantSettings,
)

Strategy = Literal[
    "weighted", "ordered", "least_busy", "latency", "price", "throughput", "prefix_aware",
    "engine_load",
]  # fmt: skip


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A model that clients may request. The short form of a target is its model alone."""

    targets: Annotated[
        tuple[TargetSettings, ...],
        Meta(min_length=1, description="Where it is served; `variants` may be given instead."),
    ] = ()
    strategy: Annotated[
        Strategy,
        Meta(
            description="Which of the targets with the lowest order goes first. A bare list of "
            "targets without weights (`NAME: [provider/model, ...]`) is `ordered`."
        ),
    ] = "weighted"
    sticky: Annotated[
        Literal["none", "session", "prefix"],
        Meta(
            description="What keeps a client with one target: X-Session-Id or `user`, or the "
            "beginning "
            "of the prompt, for providers' prompt caches."
        ),
    ] = "none"
    fallbacks: Annotated[
        tuple[Text, ...], Meta(description="Models tried when all targets failed.")
    ] = ()
    context_fallbacks: Annotated[
        tuple[Text, ...], Meta(description="Models tried when the prompt was too long.")
    ] = ()
    policy_fallbacks: Annotated[
        tuple[Text, ...], Meta(description="Models tried when the content was refused.")
    ] = ()
    retries: Annotated[
        RetrySettings | None, Meta(description="Retries, instead of the common ones.")
    ] = None
    timeouts: Annotated[
        TimeoutSettings | None, Meta(description="Only `total_s`, instead of the common one.")
    ] = None
    hedge: Annotated[
        HedgeSettings | None,
        Meta(description="Whether a second target is tried as well when the first is slow."),
    ] = None
    variants: Annotated[
        dict[str, VariantSettings],
        Meta(
            description="Variants of an A/B test or a canary, instead of `targets`; the others are "
            "compared with the first."
        ),
    ] = msgspec.field(default_factory=dict)
    assign_by: Annotated[
        AssignBy,
        Meta(
            description="What stays with one variant: a `user`, a `session`, a `key`; `request` "
            "draws "
            "for each request."
        ),
    ] = "user"
    variant_choosers: Annotated[
        tuple[Text, ...],
        Meta(description="Tags of keys whose X-Headrace-Variant is honoured; `*`: any key."),
    ] = ()
    rollback: Annotated[
        RollbackSettings | None,
        Meta(description="When a failing variant is taken out until the file is reloaded."),
    ] = None
    shadow: Annotated[
        ShadowSettings | None, Meta(description="Targets that get copies of its requests.")
    ] = None
    choose: Annotated[
        ChooseSettings | None,
        Meta(description="Another model by how hard a request is, instead of targets."),
    ] = None
    cascade: Annotated[
        CascadeSettings | None,
        Meta(
            description="Models tried in turn until an answer is good enough, instead of targets."
        ),
    ] = None
    pipeline: Annotated[
        PipelineSettings | None,
        Meta(description="A fast model, and a slow one where needed, instead of targets."),
    ] = None
    guardrails: Annotated[
        tuple[Text, ...], Meta(description="Guardrails that apply to whatever this model answers.")
    ] = ()
    engines: Annotated[
        EngineSettings,
        Meta(description="Settings of the strategies `prefix_aware` and `engine_load`."),
    ] = EngineSettings()
