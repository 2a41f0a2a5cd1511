"""What a caller may ask of the sampler; the engine's own vocabulary, ids only, no text."""

from __future__ import annotations

import msgspec


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How one request is sampled and when it ends.

    temperature: 0 is greedy. top_k: 0 means all. top_p in (0, 1], min_p in [0, 1].
    seed: of the request's own random stream; None lets the engine draw one.
    choice: which of several answers to one request this is; each has its own random stream.
    max_tokens: new tokens at most; None means up to the model's length.
    stop_token_ids: end the request, beside the model's own end ids unless `ignore_eos`.
    logprobs: None for none, k >= 0 for the chosen token and the k most likely.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    choice: int = 0
    max_tokens: int | None = 16
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
