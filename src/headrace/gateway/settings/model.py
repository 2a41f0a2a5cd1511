"""The models that clients ask for, and who serves them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.gateway.settings.provider import Quantization, Text
from headrace.gateway.settings.reliability import (
    RetrySettings,
    TimeoutSettings,
)

Strategy = Literal["weighted", "ordered", "least_busy", "latency", "price", "throughput"]
NotNegative = Annotated[float, Meta(ge=0)]


class PriceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars per million tokens, in place of the catalog's."""

    input: NotNegative
    output: NotNegative
    cache_read: NotNegative | None = None
    cache_write: NotNegative | None = None
    cache_write_1h: NotNegative | None = None


class TargetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One place where a model is served. model: "provider/model", the provider a name of this file
    or of the catalog."""

    model: Annotated[Text, Meta(description="`provider/model`.")]
    weight: Annotated[NotNegative, Meta(description="Its part of the traffic, relative.")] = 1.0
    order: Annotated[
        int, Meta(description="Targets with a lower one are tried before all with a higher.")
    ] = 0
    most_in_flight: Annotated[
        int | None, Meta(description="Most requests at it at once; more go elsewhere.")
    ] = None
    context_tokens: Annotated[
        int | None, Meta(description="What it takes at most; requests that are longer pass by.")
    ] = None
    quantization: Annotated[
        Quantization, Meta(description="How its weights are stored, for clients that ask for it.")
    ] = "unknown"
    price: Annotated[PriceSettings | None, Meta(description="In place of the catalog's.")] = None
    timeouts: Annotated[TimeoutSettings | None, Meta(description="In place of the provider's.")] = (
        None
    )


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A name clients ask for. A target may be written as its model alone."""

    targets: Annotated[tuple[TargetSettings, ...], Meta(min_length=1, description="Who serves it.")]
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
