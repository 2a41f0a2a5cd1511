"""What a request may ask of an engine: checked by the client before sending and by the core again.

Every refusal is a RequestError that names field, value and limit; nothing is clipped silently.
"""

from __future__ import annotations

import math

import msgspec

from headrace.engine.messages import Submit
from headrace.errors import RequestError

MAX_TEMPERATURE = 1e4
"""Far beyond use (OpenAI's limit is 2); logits divided by it stay ordinary float32 numbers."""

MAX_INT = (1 << 63) - 1
"""What one integer of a message may hold."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The figures requests are held against. pool_tokens: what the whole KV cache holds."""

    max_model_len: int
    pool_tokens: int
    vocab_size: int
    max_logprobs: int


def check_submit(submit: Submit, limits: Limits) -> None:
    """Raises RequestError where the engine could not serve `submit` as asked."""
    if not submit.request_id:
        raise _refuse("request_id", "is empty")
    _check_prompt(submit.prompt_token_ids, limits.vocab_size)
    params = submit.params
    if not (math.isfinite(params.temperature) and params.temperature >= 0):
        raise _refuse("temperature", f"is {params.temperature}; it must be a number from 0 up")
    if params.temperature > MAX_TEMPERATURE:
        raise _refuse("temperature", f"is {params.temperature}; the limit is {MAX_TEMPERATURE}")
    if not 0 <= params.top_k <= MAX_INT:
        raise _refuse("top_k", f"is {params.top_k}; it must be 0 (all) to {MAX_INT}")
    if not 0 < params.top_p <= 1:
        raise _refuse("top_p", f"is {params.top_p}; it must be above 0 and at most 1")
    if not 0 <= params.min_p <= 1:
        raise _refuse("min_p", f"is {params.min_p}; it must be from 0 to 1")
    if params.max_tokens is not None and params.max_tokens < 1:
        raise _refuse("max_tokens", f"is {params.max_tokens}; it must be 1 or more")
    if not 0 <= params.choice <= MAX_INT:
        raise _refuse("choice", f"is {params.choice}; it must be 0 to {MAX_INT}")
    if params.seed is not None and not -MAX_INT - 1 <= params.seed <= MAX_INT:
        raise _refuse("seed", f"is {params.seed}; it must fit in 64 bits with a sign")
    for token_id in params.stop_token_ids:
        if not 0 <= token_id < limits.vocab_size:
            raise _refuse(
                "stop_token_ids", f"has id {token_id}; the model knows 0 to {limits.vocab_size - 1}"
            )
    if params.logprobs is not None and not 0 <= params.logprobs <= limits.max_logprobs:
        raise _refuse(
            "logprobs",
            f"is {params.logprobs}; this engine gives 0 to {limits.max_logprobs} (--max-logprobs)",
        )
    _check_length(len(submit.prompt_token_ids), params.max_tokens, limits)


def _check_prompt(token_ids: list[int], vocab_size: int) -> None:
    if not token_ids:
        raise _refuse("prompt", "is empty; it must have at least one token")
    low, high = min(token_ids), max(token_ids)
    if low < 0 or high >= vocab_size:
        bad = low if low < 0 else high
        raise _refuse("prompt", f"has token id {bad}; the model knows 0 to {vocab_size - 1}")


def _check_length(prompt: int, max_tokens: int | None, limits: Limits) -> None:
    longest = min(limits.max_model_len, limits.pool_tokens)
    wanted = prompt + (1 if max_tokens is None else max_tokens)
    if wanted <= longest:
        return
    asked = "at least 1" if max_tokens is None else str(max_tokens)
    if longest == limits.max_model_len:
        limit = f"the model's context length here is {longest} tokens (--max-model-len)"
    else:
        limit = f"the KV cache holds {longest} tokens (--kv-cache-memory-bytes)"
    raise RequestError(
        f"{limit}; the request needs {wanted}: {prompt} of prompt and {asked} of output. "
        "Shorten the prompt or lower max_tokens.",
        param="prompt" if prompt >= longest else "max_tokens",
        code="context_length_exceeded",
    )


def _refuse(param: str, problem: str) -> RequestError:
    return RequestError(f"{param} {problem}", param=param, code="invalid_value")
