"""One place where a model is served."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.config.nested import formerly
from headrace.gateway.settings.provider import Quantization, Text
from headrace.gateway.settings.reliability import TimeoutSettings

NotNegative = Annotated[float, Meta(ge=0)]


class PriceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars per million tokens, in place of the catalog's."""

    input: NotNegative
    output: NotNegative
    cache_read: NotNegative | None = None
    cache_write: NotNegative | None = None
    cache_write_1h: NotNegative | None = None
    reasoning: Annotated[
        NotNegative | None, Meta(description="Tokens of thought; left out, as `output`.")
    ] = None
    input_audio: Annotated[
        NotNegative | None, Meta(description="Tokens of sound heard; left out, as `input`.")
    ] = None
    output_audio: Annotated[
        NotNegative | None, Meta(description="Tokens of speech; left out, as `output`.")
    ] = None
    image: Annotated[
        NotNegative | None,
        Meta(
            description="US dollars of one picture made; left out, answers with any have no cost."
        ),
    ] = None
    input_audio_second: Annotated[
        NotNegative | None,
        Meta(
            description="US dollars of one second heard, where a provider bills seconds; left out, "
            "such answers have no cost."
        ),
    ] = None
    flex_factor: Annotated[
        NotNegative | None,
        Meta(
            description="Of all prices, for answers at the service tier `flex`; left out, their "
            "cost is unknown."
        ),
    ] = None
    priority_factor: Annotated[
        NotNegative | None,
        Meta(
            description="Of all prices, for answers at the service tier `priority`; left out, "
            "their cost is unknown."
        ),
    ] = None


class TargetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One place where a model is served. model: "provider/model", the provider a name of this file
    or of the catalog."""

    model: Annotated[Text, Meta(description="`provider/model`.")]
    weight: Annotated[NotNegative, Meta(description="Its part of the traffic, relative.")] = 1.0
    order: Annotated[
        int, Meta(description="Targets with a lower one are tried before all with a higher.")
    ] = 0
    max_in_flight: Annotated[
        int | None,
        Meta(
            description="Most requests at it at once; more go elsewhere, or wait (`queue`). "
            "Several workers divide it, and each has one at least."
        ),
        formerly("most_in_flight"),
    ] = None
    pass_priority: Annotated[
        bool,
        Meta(
            description="Whether it is told a key's priority (`priority` of a body), as "
            "`headrace serve --scheduling-policy priority` and vLLM take it."
        ),
    ] = False
    context_tokens: Annotated[
        int | None,
        Meta(
            description="What it takes at most; prompts that are surely longer pass by, and what "
            "may be, with its max_tokens, goes to others first."
        ),
    ] = None
    quantization: Annotated[
        Quantization, Meta(description="How its weights are stored, for clients that ask for it.")
    ] = "unknown"
    price: Annotated[PriceSettings | None, Meta(description="In place of the catalog's.")] = None
    timeouts: Annotated[TimeoutSettings | None, Meta(description="In place of the provider's.")] = (
        None
    )
