"""Fields of a choice beside its text, under vLLM's names if vLLM has them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class PromptLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """A token at one position of the prompt."""

    logprob: float
    rank: Annotated[int, Meta(description="1 for the likeliest there.")]
    decoded_token: str


PromptLogprobs = list[dict[int, PromptLogprob] | None]
"""One per token of the prompt: null for the first, then by token id, the prompt's own first."""


class PromptProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of computing a prompt, under llama-server's names."""

    index: Annotated[int, Meta(description="The number of the prompt, from 0.")] = 0
    total: Annotated[int, Meta(description="Tokens of the prompt.")]
    cache: Annotated[int, Meta(description="Those found in the prefix cache.")]
    processed: Annotated[int, Meta(description="Those computed, cached ones included.")]
    time_ms: Annotated[int, Meta(description="Milliseconds since the prompt was begun.")]


class ChoiceMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Times of one choice in seconds, by the server's clock; null for stages it did not reach."""

    queue_s: Annotated[float | None, Meta(description="Waiting in the engine.")] = None
    prefill_s: Annotated[
        float | None, Meta(description="From being scheduled to the first token.")
    ] = None
    ttft_s: Annotated[
        float | None, Meta(description="From the request's arrival to the first token.")
    ] = None
    decode_s: Annotated[
        float | None, Meta(description="From the first token to the last, by the engine's clock.")
    ] = None
    e2e_s: Annotated[float, Meta(description="From arrival to the end.")]
    output_tokens_per_s: Annotated[
        float | None,
        Meta(description="Of the tokens after the first step; null where there was one."),
    ] = None
    cached_tokens: Annotated[int, Meta(description="Prompt tokens found in the prefix cache.")] = 0
    cache_miss: Annotated[str | None, Meta(description="Why there were not more.")] = None
    num_preemptions: int = 0
    draft_tokens: Annotated[int, Meta(description="Tokens guessed by speculation.")] = 0
    accepted_draft_tokens: Annotated[int, Meta(description="Those of them that came.")] = 0
