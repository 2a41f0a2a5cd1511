"""From a request's fields to the engine's sampling parameters, within this model's limits."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.engine.params import SamplingParams
from headrace.errors import RequestError
from headrace.protocol.openai.sampling import SamplingFields
from headrace.server.api_error import CONTEXT_LENGTH_EXCEEDED

# The engine's random streams are keyed by a non-negative 63-bit seed; OpenAI's are signed 64-bit.
_SEEDS = 2**63


def output_tokens(
    prompt_tokens: int,
    wanted: int | None,
    context_tokens: int,
    *,
    prompt_param: str,
    tokens_param: str,
    default: int | None = None,
) -> int:
    """Most new tokens of a request: what it wants, or by default `default` or what fits.

    Raises RequestError context_length_exceeded where prompt and `wanted` together exceed the
    context; a default is cut to what fits, as nobody asked for it.
    """
    room = context_tokens - prompt_tokens
    if room >= 1 and wanted is None:
        return room if default is None else min(default, room)
    if wanted is not None and wanted <= room:
        return wanted
    asked = 1 if wanted is None else wanted
    raise RequestError(
        # Clients look for the code, and for the words "maximum context length is".
        f"This model's maximum context length is {context_tokens} tokens, and the request needs "
        f"{prompt_tokens + asked}: {prompt_tokens} in the prompt and {asked} in the output. "
        f"Shorten the prompt or lower {tokens_param}.",
        param=prompt_param if room < 1 else tokens_param,
        code=CONTEXT_LENGTH_EXCEEDED,
    )


def sampling_params(
    fields: SamplingFields, max_tokens: int, logprobs: int | None, vocab_size: int
) -> SamplingParams:
    """The engine's parameters; raises RequestError for stop ids outside the vocabulary."""
    check_token_ids(fields.stop_token_ids, "stop_token_ids", vocab_size)
    top_k, top_p = max(fields.top_k, 0), fields.top_p
    if top_p == 0:
        # The smallest set with any mass is one token; the engine wants that said with top_k.
        top_k, top_p = 1, 1.0
    return SamplingParams(
        temperature=fields.temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=fields.min_p,
        seed=None if fields.seed is None else fields.seed % _SEEDS,
        max_tokens=max_tokens,
        stop_token_ids=tuple(fields.stop_token_ids),
        ignore_eos=fields.ignore_eos,
        logprobs=logprobs,
    )


def check_logprobs(wanted: int, limit: int, param: str) -> None:
    """Raise RequestError for more log probabilities per token than the engine gives."""
    if wanted > limit:
        raise RequestError(
            f"{param}: {wanted} is more than the {limit} this server gives; lower it, or start the "
            "server with a higher --max-logprobs",
            param=param,
        )


def check_prompt_ids(token_ids: Sequence[int], param: str, vocab_size: int) -> None:
    """Raise RequestError for a prompt without tokens or with ids outside the vocabulary."""
    if not token_ids:
        raise RequestError(
            f"{param}: the prompt has no tokens; this model's tokenizer adds none of its own, so "
            "give at least one",
            param=param,
        )
    check_token_ids(token_ids, param, vocab_size)


def check_token_ids(token_ids: Sequence[int], param: str, vocab_size: int) -> None:
    if token_ids and max(token_ids) >= vocab_size:
        index = next(i for i, token_id in enumerate(token_ids) if token_id >= vocab_size)
        raise RequestError(
            f"{param}[{index}]: {token_ids[index]} is not a token id of this model; "
            f"ids are 0 to {vocab_size - 1}",
            param=f"{param}[{index}]",
        )
