"""From a request's fields to the engine's sampling parameters.

What they may be is the engine's to say (`headrace.engine.limits`); here they get their defaults.
"""

from __future__ import annotations

from headrace.engine.limits import (
    CONTEXT_LENGTH_EXCEEDED,
    Limits,
    check_length,
    check_token_ids,
)
from headrace.engine.params import SamplingParams
from headrace.errors import RequestError
from headrace.protocol.openai.sampling import SamplingFields


def output_tokens(
    prompt_tokens: int,
    wanted: int | None,
    limits: Limits,
    *,
    prompt_param: str,
    tokens_param: str,
    default: int | None = None,
) -> int:
    """Most new tokens of a request: what it wants, or by default `default` or what fits.

    Raises RequestError context_length_exceeded where prompt and `wanted` together exceed the
    context; a default is cut to what fits, as nobody asked for it.
    """
    check_length(
        prompt_tokens, wanted, limits, prompt_param=prompt_param, tokens_param=tokens_param
    )
    if wanted is not None:
        return wanted
    room = limits.context_tokens - prompt_tokens
    return room if default is None else min(default, room)


def check_fewest_tokens(fewest_tokens: int, limits: Limits, param: str) -> None:
    """Raise RequestError context_length_exceeded for a text that cannot fit, however it is cut.

    fewest_tokens: a bound from below, known before the text is tokenized.
    """
    if fewest_tokens >= limits.context_tokens:
        raise RequestError(
            # Clients look for the code, and for the words "maximum context length is".
            f"This model's maximum context length is {limits.context_tokens} tokens; {param} has "
            f"at least {fewest_tokens} tokens. Shorten it.",
            param=param,
            code=CONTEXT_LENGTH_EXCEEDED,
        )


def sampling_params(
    fields: SamplingFields, max_tokens: int, logprobs: int | None, limits: Limits
) -> SamplingParams:
    """The engine's parameters; raises RequestError for stop ids outside the vocabulary.

    The seed goes through as it is, so that a request gives the same tokens here as in process.
    """
    check_token_ids(fields.stop_token_ids, limits, "stop_token_ids")
    return SamplingParams(
        temperature=fields.temperature,
        top_k=fields.top_k,
        top_p=fields.top_p,
        min_p=fields.min_p,
        seed=fields.seed,
        max_tokens=max_tokens,
        stop_token_ids=tuple(fields.stop_token_ids),
        ignore_eos=fields.ignore_eos,
        logprobs=logprobs,
    )
