"""What a choice of either kind may carry beside its text, in vLLM's names where vLLM has them."""

from __future__ import annotations

import msgspec


class PromptLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """A token at one position of the prompt. rank: 1 for the likeliest there."""

    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[int, PromptLogprob] | None]
"""One per token of the prompt: null for the first, then by token id, the prompt's own first."""


class ChoiceMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """How one choice went, by the server's clock; seconds. Null where it did not come so far.

    queue_s: waiting in the engine. prefill_s: from being scheduled to the first token. ttft_s:
    from the request's arrival to the first token. decode_s: from the first token to the last.
    e2e_s: from arrival to the end. output_tokens_per_s: of the tokens after the first.
    cached_tokens: of the prompt, found in the prefix cache; cache_miss: why not more.
    """

    queue_s: float | None = None
    prefill_s: float | None = None
    ttft_s: float | None = None
    decode_s: float | None = None
    e2e_s: float
    output_tokens_per_s: float | None = None
    cached_tokens: int = 0
    cache_miss: str | None = None
    num_preemptions: int = 0
