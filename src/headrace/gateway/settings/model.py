"""The models that clients ask for, and who serves them."""

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
    """A name clients ask for. A target may be written as its model alone."""

    targets: Annotated[
        tuple[TargetSettings, ...],
        Meta(min_length=1, description="Who serves it; in its place there may be `variants`."),
    ] = ()
    strategy: Annotated[
        Strategy, Meta(description="Which of the targets with the lowest order goes first.")
    ] = "weighted"
    sticky: Annotated[
        Literal["none", "session", "prefix"],
        Meta(
            description="What keeps a client with one target: X-Session-Id or `user`, or the "
            "beginning of the prompt, for providers' prompt caches."
        ),
    ] = "none"
    fallbacks: Annotated[
        tuple[Text, ...], Meta(description="Models asked when all targets failed.")
    ] = ()
    context_fallbacks: Annotated[
        tuple[Text, ...], Meta(description="Models asked when the prompt was too long.")
    ] = ()
    policy_fallbacks: Annotated[
        tuple[Text, ...], Meta(description="Models asked when content was refused.")
    ] = ()
    retries: Annotated[RetrySettings | None, Meta(description="In place of the common ones.")] = (
        None
    )
    timeouts: Annotated[
        TimeoutSettings | None, Meta(description="Of these `total_s`, in place of the common one.")
    ] = None
    hedge: Annotated[
        HedgeSettings | None,
        Meta(description="Whether another target is asked too where the first is slow."),
    ] = None
    variants: Annotated[
        dict[str, VariantSettings],
        Meta(
            description="Sides of an A/B test or a canary, in place of `targets`; the first is the "
            "one that others are compared with."
        ),
    ] = msgspec.field(default_factory=dict)
    assign_by: Annotated[
        AssignBy,
        Meta(
            description="Who stays on one side: a `user`, a `session`, a `key`; `request` draws "
            "each time."
        ),
    ] = "user"
    variant_choosers: Annotated[
        tuple[Text, ...],
        Meta(description="Tags of keys whose X-Headrace-Variant is followed; `*`: everybody's."),
    ] = ()
    rollback: Annotated[
        RollbackSettings | None,
        Meta(description="When a variant that fails is taken out until the file is read anew."),
    ] = None
    shadow: Annotated[
        ShadowSettings | None, Meta(description="Who is sent copies of its requests.")
    ] = None
    choose: Annotated[
        ChooseSettings | None,
        Meta(description="In place of targets: another model by how hard a request is."),
    ] = None
    cascade: Annotated[
        CascadeSettings | None,
        Meta(description="In place of targets: models asked in turn until an answer is good."),
    ] = None
    pipeline: Annotated[
        PipelineSettings | None,
        Meta(description="In place of targets: a fast model, and a slow one where it is wanted."),
    ] = None
    guardrails: Annotated[
        tuple[Text, ...], Meta(description="Guardrails that hold for what this model may answer.")
    ] = ()
    engines: Annotated[
        EngineSettings, Meta(description="Of the strategies `prefix_aware` and `engine_load`.")
    ] = EngineSettings()
