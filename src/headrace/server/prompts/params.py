"""From a request's fields to the engine's sampling parameters.

What they may be is the engine's to say (`headrace.engine.limits`); here they get their defaults.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from headrace.conversation.thinking import ReasoningStart
from headrace.engine.limits import (
    Limits,
    check_bad_words,
    check_length,
    check_params,
)
from headrace.engine.params import MODEL_DEFAULTS, SAMPLERS, SamplingParams, ThinkingBudget
from headrace.engine.sampling.defaults import SamplingDefaults, completed
from headrace.errors import ContextLengthError, RequestError, shown
from headrace.protocol.openai.sampling import SamplingFields
from headrace.structured.grammar import Grammar

# As many digits as an id of 64 bits can have; int() of a longer text takes its time.
_TOKEN_ID = re.compile(r"(0|[1-9][0-9]{0,18})\Z")


def output_tokens(
    prompt_tokens: int,
    wanted: int | None,
    limits: Limits,
    *,
    prompt_param: str,
    tokens_param: str,
    min_tokens: int = 0,
    default: int | None = None,
) -> int:
    """Most new tokens of a request: what it wants, or by default `default` or what fits.

    Raises RequestError context_length_exceeded where prompt and `wanted` (or min_tokens) together
    exceed the context; a default is cut to what fits, as nobody asked for it.
    """
    check_length(
        prompt_tokens, wanted, limits, prompt_param=prompt_param, tokens_param=tokens_param
    )
    if wanted is None and min_tokens:
        check_length(
            prompt_tokens,
            min_tokens,
            limits,
            prompt_param=prompt_param,
            tokens_param="min_tokens",
        )
    if wanted is not None:
        return wanted
    room = limits.context_tokens - prompt_tokens
    return room if default is None else min(default, room)


def exceeds_context(least_tokens: int, limits: Limits, param: str) -> ContextLengthError:
    """The context_length_exceeded for a text that has at least so many tokens."""
    is_models = limits.context_tokens == limits.max_model_len
    cause = f" ({limits.length_cause})" if limits.length_cause and is_models else ""
    return ContextLengthError(
        # Clients look for the code, and for the words "maximum context length is".
        f"This model's maximum context length is {limits.context_tokens} tokens"
        f"{cause}; {param} has at least {least_tokens} tokens. Shorten it.",
        param=param,
        context_tokens=limits.context_tokens,
    )


def sampling_params(
    fields: SamplingFields,
    limits: Limits,
    defaults: SamplingDefaults,
    *,
    logprobs: int | None = None,
    bad_words: tuple[tuple[int, ...], ...] = (),
    grammar: Grammar | None = None,
) -> SamplingParams:
    """The engine's parameters but for what depends on the prompt (max_tokens, the budget of
    reasoning), and the choice.

    defaults: the model's, of the fields that the request leaves out. bad_words: as ids. grammar: of
    the answer. The seed goes through as it is, so that a request gives the same tokens here as in
    process.
    Raises RequestError where the engine could not honour them.
    """
    check_bad_words(bad_words, limits, "bad_words")
    allowed = fields.allowed_token_ids
    samplers = SAMPLERS if fields.samplers is None else tuple(fields.samplers)
    given = {name: getattr(fields, name) for name in MODEL_DEFAULTS}
    params = SamplingParams(
        **completed(given, defaults, samplers),
        frequency_penalty=fields.frequency_penalty,
        presence_penalty=fields.presence_penalty,
        logit_bias=_logit_bias(fields.logit_bias, limits),
        allowed_token_ids=None if allowed is None else tuple(allowed),
        bad_words_token_ids=bad_words,
        samplers=samplers,
        seed=fields.seed,
        max_tokens=None,
        min_tokens=fields.min_tokens,
        stop_token_ids=tuple(fields.stop_token_ids),
        ignore_eos=fields.ignore_eos,
        speculation=fields.speculation,
        grammar=grammar,
        logprobs=logprobs,
    )
    check_params(params, limits)
    return params


def thinking_budget(max_tokens: int | None, start: ReasoningStart | None) -> ThinkingBudget | None:
    """The budget of an answer's reasoning; None where there is none, or nothing to bound."""
    if max_tokens is None or start is None:
        return None
    return ThinkingBudget.between(*start.marks, max_tokens=max_tokens, is_open=start.is_open)


def _logit_bias(given: Mapping[str, float], limits: Limits) -> dict[int, float]:
    """The biases by the ids that OpenAI's API writes as strings."""
    # Before a million keys are looked at one by one.
    if len(given) > limits.vocab_size:
        raise RequestError(
            f"logit_bias: {len(given)} entries, and the model has {limits.vocab_size} tokens; "
            "give at most one for each",
            param="logit_bias",
            code="invalid_value",
        )
    for key in given:
        if not _TOKEN_ID.match(key):
            raise RequestError(
                f'logit_bias: the key {shown(key)} is not a token id; the model has "0" to '
                f'"{limits.vocab_size - 1}"',
                param="logit_bias",
                code="invalid_value",
            )
    return {int(key): bias for key, bias in given.items()}
