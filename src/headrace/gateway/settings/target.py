"""Targets, their prices and limits."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.config.nested import formerly
from headrace.gateway.settings.provider import Quantization, Text
from headrace.gateway.settings.reliability import TimeoutSettings

NotNegative = Annotated[float, Meta(ge=0)]


class PriceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Prices in US dollars per million tokens, instead of the catalog's."""

    input: NotNegative
    output: NotNegative
    cache_read: NotNegative | None = None
    cache_write: NotNegative | None = None
    cache_write_1h: NotNegative | None = None
    reasoning: Annotated[
        NotNegative | None, Meta(description="Reasoning tokens; as `output` if omitted.")
    ] = None
    input_audio: Annotated[
        NotNegative | None, Meta(description="Audio input tokens; as `input` if omitted.")
    ] = None
    output_audio: Annotated[
        NotNegative | None, Meta(description="Audio output tokens; as `output` if omitted.")
    ] = None
    image: Annotated[
        NotNegative | None,
        Meta(
            description="US dollars per generated image; if omitted, the cost of answers with "
            "images is "
            "unknown."
        ),
    ] = None
    input_audio_second: Annotated[
        NotNegative | None,
        Meta(
            description="US dollars per second of audio input, where a provider bills seconds; if "
            "omitted, the cost of such answers is unknown."
        ),
    ] = None
    flex_factor: Annotated[
        NotNegative | None,
        Meta(
            description="Factor of all prices for answers at the service tier `flex`; if omitted, "
            "their "
            "cost is unknown."
        ),
    ] = None
    priority_factor: Annotated[
        NotNegative | None,
        Meta(
            description="Factor of all prices for answers at the service tier `priority`; if "
            "omitted, "
            "their cost is unknown."
        ),
    ] = None


class TargetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One place where a model is served: "provider/model", with a provider of this file or of the
    catalog."""

    model: Annotated[Text, Meta(description="`provider/model`.")]
    weight: Annotated[NotNegative, Meta(description="Its relative share of the traffic.")] = 1.0
    order: Annotated[
        int, Meta(description="Targets with a lower order are tried before all with a higher one.")
    ] = 0
    max_in_flight: Annotated[
        int | None,
        Meta(
            description="How many requests it gets at once at most; more go elsewhere, or wait "
            "(`queue`). Several workers divide it, and each gets at least one."
        ),
        formerly("most_in_flight"),
    ] = None
    pass_priority: Annotated[
        bool,
        Meta(
            description="Whether a key's priority is sent to it (`priority` in the body), as "
            "`headrace "
            "serve --scheduling-policy priority` and vLLM accept it."
        ),
    ] = False
    context_tokens: Annotated[
        int | None,
        Meta(
            description="Its context length. Prompts that are certainly longer skip it, and those "
            "that "
            "may be, with their max_tokens, try others first."
        ),
    ] = None
    quantization: Annotated[
        Quantization,
        Meta(description="How its weights are quantized, for clients that request a kind."),
    ] = "unknown"
    price: Annotated[PriceSettings | None, Meta(description="Price, instead of the catalog's.")] = (
        None
    )
    timeouts: Annotated[
        TimeoutSettings | None, Meta(description="Timeouts, instead of the provider's.")
    ] = None
