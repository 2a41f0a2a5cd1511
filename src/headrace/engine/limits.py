"""What a request may ask of an engine: checked by the client before sending and by the core again.

Every refusal is a RequestError that names field, value and limit; nothing is clipped silently.
Whoever calls a field by another name (the API's "messages", "prompt[3]") says so with `param`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from headrace.engine.messages import NO_TOKEN_LEFT, EngineInfo, Submit
from headrace.engine.params import (
    MAX_LOGIT_BIAS,
    RANGES,
    SAMPLERS,
    Range,
    SamplingParams,
    ThinkingBudget,
)
from headrace.engine.sampling.sampler_order import NEUTRAL, acting
from headrace.errors import ContextLengthError, RequestError, bound_code
from headrace.structured.limits import DEFAULT as GRAMMAR_LIMITS

MAX_STOP_TOKEN_IDS = 1024
"""Each new token is looked for among them, one by one: far fewer microseconds than a step takes."""

MAX_THINKING_IDS = 64
"""Of a sequence that begins or ends reasoning: a tag, or a sentence."""

MAX_OTHER_END_IDS = 1 << 18
"""In all sequences together that end reasoning beside its mark: a dozen ways in which a call may
begin, of some fifteen ids each, for each of a thousand tools."""

MAX_BAD_WORDS_IDS = 1 << 14
"""In all sequences together. Those that wait for the same token are compared one by one: so many,
of two ids each, are looked through in about a millisecond."""

MAX_PROMPT_LOGPROBS_VALUES = 1 << 22
"""Log probabilities of one prompt, its tokens' own and their rivals': 60 MB on the wire and half a
gigabyte as objects. 20 rivals for each of 131,072 tokens are 2.8 million."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The figures requests are held against. pool_tokens: the longest request that the whole
    KV cache can serve.
    """

    max_model_len: int
    pool_tokens: int
    vocab_size: int
    max_logprobs: int
    scheduling_policy: str = "fcfs"
    length_cause: str = ""
    """What keeps the model from max_model_len + 1 tokens; "" for the setting --max-model-len."""

    @classmethod
    def of(cls, info: EngineInfo, max_logprobs: int) -> Limits:
        """Those of a running engine."""
        return cls(
            max_model_len=info.max_model_len,
            pool_tokens=info.pool_tokens,
            vocab_size=info.vocab_size,
            max_logprobs=max_logprobs,
            scheduling_policy=info.scheduling_policy,
            length_cause=info.length_cause,
        )

    @property
    def context_tokens(self) -> int:
        """Most tokens of prompt and output together: the model's limit, or the KV cache's."""
        return min(self.max_model_len, self.pool_tokens)


def check_submit(submit: Submit, limits: Limits) -> None:
    """Raises RequestError where the engine could not serve `submit` as asked."""
    if not submit.request_id:
        raise _refuse("request_id", "is empty")
    check_text(submit.request_id, "request_id")
    check_text(submit.cache_salt, "cache_salt")
    params = submit.params
    check_prompt(submit.prompt_token_ids, limits)
    check_params(params, limits)
    check_ranges(submit)
    check_priority(submit.priority, limits)
    if submit.timeout_s == 0:
        raise _refuse(
            "timeout_s",
            f"is {submit.timeout_s}; it must be more than 0 seconds, or None for no deadline",
        )
    prompt_tokens = len(submit.prompt_token_ids)
    check_prompt_logprobs(prompt_tokens, params.prompt_logprobs)
    check_length(prompt_tokens, params.max_tokens, limits)
    if params.max_tokens is None:
        check_length(prompt_tokens, max(1, params.min_tokens), limits, tokens_param="min_tokens")


def check_params(params: SamplingParams, limits: Limits) -> None:
    """Everything about `params` that does not depend on the prompt."""
    check_ranges(params)
    _check_count(len(params.stop_token_ids), MAX_STOP_TOKEN_IDS, "stop_token_ids", "ids")
    check_token_ids(params.stop_token_ids, limits, "stop_token_ids")
    check_logit_bias(params.logit_bias, limits)
    allowed = params.allowed_token_ids
    if allowed is not None:
        if not allowed:
            raise _refuse("allowed_token_ids", "is empty: it allows no token; omit it")
        _check_count(len(allowed), limits.vocab_size, "allowed_token_ids", "ids")
        check_token_ids(allowed, limits, "allowed_token_ids")
    check_bad_words(params.bad_words_token_ids, limits)
    if allowed is not None:
        _check_left(allowed, params.bad_words_token_ids)
    if params.max_tokens is not None and params.min_tokens > params.max_tokens:
        raise _refuse(
            "min_tokens", f"is {params.min_tokens}, more than max_tokens, {params.max_tokens}"
        )
    if params.grammar is not None:
        GRAMMAR_LIMITS.check_size(params.grammar)
    if params.thinking is not None:
        check_thinking(params.thinking, limits)
    check_samplers(params)
    if params.logprobs is not None:
        check_logprobs(params.logprobs, limits)
    if params.prompt_logprobs is not None:
        check_logprobs(params.prompt_logprobs, limits, "prompt_logprobs")


def _check_left(allowed: Sequence[int], bad_words: Sequence[Sequence[int]]) -> None:
    """Some id may come that is not a bad word by itself."""
    banned = {word[0] for word in bad_words if len(word) == 1}
    if banned.issuperset(allowed):
        raise RequestError(
            f"allowed_token_ids: each of the {len(set(allowed))} ids is a bad word, so that no "
            "token could come; allow another, or omit one of the two",
            param="allowed_token_ids",
            code=NO_TOKEN_LEFT,
        )


def check_logit_bias(bias: Mapping[int, float], limits: Limits, param: str = "logit_bias") -> None:
    """Every id is one of the model's, every bias within OpenAI's limit."""
    for token_id, value in bias.items():
        if not 0 <= token_id < limits.vocab_size:
            raise _refuse(
                param,
                f"names token id {_shown(token_id)}; the model has 0 to {limits.vocab_size - 1}",
            )
        if not -MAX_LOGIT_BIAS <= value <= MAX_LOGIT_BIAS:
            raise _refuse(
                f"{param}[{token_id}]",
                f"is {_shown(value)}; it must be {-MAX_LOGIT_BIAS:g} to {MAX_LOGIT_BIAS:g}",
            )


def check_bad_words(
    words: Sequence[Sequence[int]], limits: Limits, param: str = "bad_words_token_ids"
) -> None:
    """Sequences of the model's ids, none of them empty, not too many in all."""
    _check_count(sum(map(len, words)), MAX_BAD_WORDS_IDS, param, "ids in all")
    for index, word in enumerate(words):
        if not word:
            raise _refuse(f"{param}[{index}]", "is empty; omit it")
        check_token_ids(word, limits, f"{param}[{index}]")


def check_thinking(budget: ThinkingBudget, limits: Limits, param: str = "thinking") -> None:
    """A count within `RANGES`, ids of the model that end it, and those that begin it where the
    prompt has not."""
    if budget.max_tokens not in RANGES["max_tokens"]:
        raise _refuse(
            f"{param}.max_tokens",
            f"is {_shown(budget.max_tokens)}; it must be {RANGES['max_tokens']}",
        )
    num_others = sum(map(len, budget.other_end_ids))
    _check_count(num_others, MAX_OTHER_END_IDS, f"{param}.other_end_ids", "ids in all")
    others = [(f"other_end_ids[{at}]", ids) for at, ids in enumerate(budget.other_end_ids)]
    for name, ids in (
        ("end_ids", budget.end_ids),
        ("begin_ids", budget.begin_ids),
        ("masked_ids", budget.masked_ids),
    ):
        _check_count(len(ids), MAX_THINKING_IDS, f"{param}.{name}", "ids")
        check_token_ids(ids, limits, f"{param}.{name}")
    for name, ids in others:
        check_token_ids(ids, limits, f"{param}.{name}")
    for name, ids in (("end_ids", budget.end_ids), *others):
        if not ids:
            raise _refuse(f"{param}.{name}", "is empty; name the ids that end the reasoning")
    if budget.is_open == bool(budget.begin_ids):
        problem = (
            "is given, but is_open says that the prompt has begun the reasoning; give one of both"
            if budget.is_open
            else "is empty, so that reasoning never begins; name the ids that begin it, or say "
            "is_open"
        )
        raise _refuse(f"{param}.begin_ids", problem)


def check_samplers(params: SamplingParams) -> None:
    """Samplers are known, come once, and none that would do something is left out."""
    samplers = params.samplers
    for index, name in enumerate(samplers):
        if name not in SAMPLERS:
            raise _refuse(
                f"samplers[{index}]", f"is {name!r}; the samplers are {', '.join(SAMPLERS)}"
            )
        if name in samplers[:index]:
            raise _refuse(f"samplers[{index}]", f"is {name!r} a second time; each comes once")
    for name in SAMPLERS:
        unused = acting(params, name) if name not in samplers else []
        if unused:
            neutral = NEUTRAL[name][unused[0]][0]
            raise _refuse(
                unused[0],
                f"is {getattr(params, unused[0])}, but samplers "
                f"({', '.join(samplers) or 'none'}) omits {name!r}; add it to samplers, or "
                f"keep {unused[0]} at {neutral:g}",
            )


def check_priority(priority: int, limits: Limits, param: str = "priority") -> None:
    """A priority other than 0 is for an engine that looks at it."""
    if priority and limits.scheduling_policy != "priority":
        raise _refuse(
            param,
            f"is {priority}, but this engine schedules by {limits.scheduling_policy} and "
            "ignores it; start it with --scheduling-policy priority, or keep it at 0",
        )


_NUMBERS = (int, float)


def check_ranges(fields: object) -> None:
    """Hold every attribute that `RANGES` knows against its range; None and absent ones pass."""
    for name, allowed in RANGES.items():
        value = getattr(fields, name, None)
        if value is None or (type(value) in _NUMBERS and allowed.low <= value <= allowed.high):
            continue
        if value not in allowed:
            raise RequestError(
                f"{name} is {_shown(value)}; it must be {allowed}",
                param=name,
                code=_range_code(name, value, allowed),
            )


_NEUTRAL = SamplingParams()
"""Its values show which fields are decimals."""


def _range_code(name: str, value: object, allowed: Range) -> str:
    """OpenAI's code of a value that is not within a range."""
    if not isinstance(value, int | float) or value != value:
        return "invalid_value"
    is_whole = isinstance(value, int) and not isinstance(getattr(_NEUTRAL, name, 0.0), float)
    return bound_code("integer" if is_whole else "decimal", is_below=value < allowed.low)


def check_prompt(token_ids: Sequence[int], limits: Limits, param: str = "prompt") -> None:
    """A prompt has a token, and only ids of the model."""
    if not token_ids:
        in_messages = param == "messages"
        what = "become no tokens: they have no text" if in_messages else "is empty: no tokens"
        raise _refuse(param, f"{what}; at least one token is needed")
    check_token_ids(token_ids, limits, param)


def check_token_ids(token_ids: Sequence[int], limits: Limits, param: str) -> None:
    """Every id is one of the model's."""
    if token_ids and not (min(token_ids) >= 0 and max(token_ids) < limits.vocab_size):
        index = next(
            index
            for index, token_id in enumerate(token_ids)
            if not 0 <= token_id < limits.vocab_size
        )
        raise _refuse(
            f"{param}[{index}]",
            f"is token id {_shown(token_ids[index])}; the model has 0 to {limits.vocab_size - 1}",
        )


def check_logprobs(wanted: int, limits: Limits, param: str = "logprobs") -> None:
    """No more log probabilities per token than the engine gives."""
    if not 0 <= wanted <= limits.max_logprobs:
        raise _refuse(
            param,
            f"is {_shown(wanted)}; this engine gives 0 to {limits.max_logprobs} (--max-logprobs)",
        )


def check_prompt_logprobs(prompt_tokens: int, rivals: int | None) -> None:
    """All log probabilities of a prompt, which come in one piece, are not too many."""
    if rivals is None or prompt_tokens * (rivals + 1) <= MAX_PROMPT_LOGPROBS_VALUES:
        return
    raise _refuse(
        "prompt_logprobs",
        f"is {rivals}, which for {prompt_tokens} tokens of prompt makes "
        f"{prompt_tokens * (rivals + 1)} log probabilities; at most {MAX_PROMPT_LOGPROBS_VALUES} "
        "are given. Ask for fewer, or shorten the prompt",
    )


def check_text(value: str, param: str) -> None:
    """A text that has bytes: a lone half of a surrogate pair has none, and no message takes it."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _refuse(
            param,
            f"holds U+{ord(value[error.start]):04X} at {error.start}, half a surrogate pair, "
            "which is not a character; remove it",
        ) from error


def check_length(
    prompt_tokens: int,
    max_tokens: int | None,
    limits: Limits,
    *,
    prompt_param: str = "prompt",
    tokens_param: str = "max_tokens",
) -> None:
    """Prompt and output (at least one token of it) fit into the context."""
    longest = limits.context_tokens
    wanted = prompt_tokens + (1 if max_tokens is None else max_tokens)
    if wanted <= longest:
        return
    asked = "at least 1" if max_tokens is None else str(max_tokens)
    cause = limits.length_cause or "--max-model-len"
    if longest < limits.max_model_len:
        cause = "what the KV cache holds; --kv-cache-memory-bytes"
    raise ContextLengthError(
        # Clients look for the code, and for the words "maximum context length is".
        f"This model's maximum context length is {longest} tokens ({cause}); the request needs "
        f"{wanted}: {prompt_tokens} of prompt and {asked} of output. "
        f"Shorten the prompt or lower {tokens_param}.",
        param=prompt_param if prompt_tokens >= longest else tokens_param,
        context_tokens=longest,
        prompt_tokens=prompt_tokens,
    )


def _shown(value: float) -> str:
    """A number in words; Python's integers have any length, its texts of them have not."""
    bits = value.bit_length() if isinstance(value, int) else 0
    return str(value) if bits <= 128 else f"an integer of {bits} bits"


def _check_count(count: int, most: int, param: str, what: str) -> None:
    if count > most:
        raise _refuse(param, f"has {count} {what}; at most {most} are accepted")


def _refuse(param: str, problem: str) -> RequestError:
    return RequestError(f"{param} {problem}", param=param, code="invalid_value")
