"""What a request may ask of an engine: checked by the client before sending and by the core again.

Every refusal is a RequestError that names field, value and limit; nothing is clipped silently.
Whoever calls a field by another name (the API's "messages", "prompt[3]") says so with `param`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.engine.messages import EngineInfo, Submit
from headrace.engine.params import RANGES
from headrace.errors import RequestError

CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The figures requests are held against. pool_tokens: the longest request that the whole
    KV cache can serve.
    """

    max_model_len: int
    pool_tokens: int
    vocab_size: int
    max_logprobs: int

    @classmethod
    def of(cls, info: EngineInfo, max_logprobs: int) -> Limits:
        """Those of a running engine."""
        return cls(
            max_model_len=info.max_model_len,
            pool_tokens=info.pool_tokens,
            vocab_size=info.vocab_size,
            max_logprobs=max_logprobs,
        )

    @property
    def context_tokens(self) -> int:
        """Most tokens of prompt and output together: the model's limit, or the KV cache's."""
        return min(self.max_model_len, self.pool_tokens)


def check_submit(submit: Submit, limits: Limits) -> None:
    """Raises RequestError where the engine could not serve `submit` as asked."""
    if not submit.request_id:
        raise _refuse("request_id", "is empty")
    params = submit.params
    check_prompt(submit.prompt_token_ids, limits)
    check_ranges(params)
    check_token_ids(params.stop_token_ids, limits, "stop_token_ids")
    if params.logprobs is not None:
        check_logprobs(params.logprobs, limits)
    check_length(len(submit.prompt_token_ids), params.max_tokens, limits)


def check_ranges(fields: object) -> None:
    """Hold every attribute that `RANGES` knows against its range; None and absent ones pass."""
    for name, allowed in RANGES.items():
        value = getattr(fields, name, None)
        if value is not None and value not in allowed:
            raise _refuse(name, f"is {value}; it must be {allowed}")


def check_prompt(token_ids: Sequence[int], limits: Limits, param: str = "prompt") -> None:
    """A prompt has a token, and only ids of the model."""
    if not token_ids:
        raise _refuse(param, "is empty: it has no tokens; give at least one")
    check_token_ids(token_ids, limits, param)


def check_token_ids(token_ids: Sequence[int], limits: Limits, param: str) -> None:
    """Every id is one of the model's."""
    if token_ids and not (min(token_ids) >= 0 and max(token_ids) < limits.vocab_size):
        index = next(
            index for index, one in enumerate(token_ids) if not 0 <= one < limits.vocab_size
        )
        raise _refuse(
            f"{param}[{index}]",
            f"is token id {token_ids[index]}; the model knows 0 to {limits.vocab_size - 1}",
        )


def check_logprobs(wanted: int, limits: Limits, param: str = "logprobs") -> None:
    """No more log probabilities per token than the engine gives."""
    if not 0 <= wanted <= limits.max_logprobs:
        raise _refuse(
            param, f"is {wanted}; this engine gives 0 to {limits.max_logprobs} (--max-logprobs)"
        )


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
    cause = "--max-model-len"
    if longest < limits.max_model_len:
        cause = "what the KV cache holds; --kv-cache-memory-bytes"
    raise RequestError(
        # Clients look for the code, and for the words "maximum context length is".
        f"This model's maximum context length is {longest} tokens ({cause}); the request needs "
        f"{wanted}: {prompt_tokens} of prompt and {asked} of output. "
        f"Shorten the prompt or lower {tokens_param}.",
        param=prompt_param if prompt_tokens >= longest else tokens_param,
        code=CONTEXT_LENGTH_EXCEEDED,
    )


def _refuse(param: str, problem: str) -> RequestError:
    return RequestError(f"{param} {problem}", param=param, code="invalid_value")
