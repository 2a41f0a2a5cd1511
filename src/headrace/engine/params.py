"""What a caller may ask of the sampler; the engine's own vocabulary, ids only, no text.

`RANGES` is the one place that says what its numbers may be: command line, API and engine read it.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

MAX_INT = (1 << 63) - 1
"""What one integer of a message may hold."""

MAX_TEMPERATURE = 1e4
"""Far beyond use (OpenAI's limit is 2); logits divided by it stay ordinary float32 numbers."""


class Range(NamedTuple):
    """What a number may be; both ends are allowed."""

    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        """Whether `value` is a number within; NaN is not."""
        return isinstance(value, (int, float)) and self.low <= value <= self.high

    def __str__(self) -> str:
        """In words: "0 to 1", "1 or more"."""
        if self.high < MAX_INT:
            return f"{self.low:g} to {self.high:g}"
        if self.low < -1:
            return "an integer of 64 bits with its sign"
        return f"{self.low:g} or more, in 64 bits"


RANGES = {
    "temperature": Range(0, MAX_TEMPERATURE),
    "top_k": Range(-1, MAX_INT),
    "top_p": Range(0, 1),
    "min_p": Range(0, 1),
    "seed": Range(-MAX_INT - 1, MAX_INT),
    "choice": Range(0, MAX_INT),
    "max_tokens": Range(1, MAX_INT),
}


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How one request is sampled and when it ends. Numbers are within `RANGES`.

    temperature: 0 is greedy. top_k: 0 and -1 keep all. top_p: 0 keeps the likeliest token alone.
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
