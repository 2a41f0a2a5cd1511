"""llama-server's request fields as those of completions."""

from __future__ import annotations

from typing import Any

from headrace.errors import RequestError
from headrace.protocol.llamacpp.request import NativeFields, steps_of
from headrace.protocol.openai.completions import CompletionRequest
from headrace.protocol.openai.rules import check_generation

_FORBIDDEN = -100.0
_MS_PER_S = 1000.0


def completion_request(fields: NativeFields) -> CompletionRequest:
    """The completion that a request asks for, but for its prompts.

    Raises RequestError naming the field at fault.
    """
    steps, neutral = steps_of(fields)
    given: dict[str, Any] = {
        "temperature": fields.temperature,
        "top_k": None if fields.top_k is None else max(0, fields.top_k),
        "top_p": fields.top_p,
        "min_p": fields.min_p,
    }
    penalty = fields.repeat_penalty
    if "penalties" not in steps:
        penalty = 1.0
    seed = fields.seed
    request = CompletionRequest(
        model=fields.model,
        prompt="",
        n=fields.n_cmpl,
        max_tokens=None if fields.n_predict == -1 else fields.n_predict,
        logprobs=fields.n_probs or None,
        samplers=steps,
        repetition_penalty=penalty,
        seed=None if seed is None or seed < 0 else seed,
        stop=[text for text in _stops(fields) if text],
        ignore_eos=fields.ignore_eos,
        speculation=fields.speculation,
        logit_bias=_biases(fields),
        grammar=fields.grammar or None,
        json_schema=fields.json_schema,
        stream=fields.stream,
        timeout_s=fields.t_max_predict_ms / _MS_PER_S if fields.t_max_predict_ms else None,
        return_progress=fields.return_progress,
        **{**given, **neutral},
    )
    check_generation(request)
    if fields.n_predict == 0:
        raise RequestError(
            "n_predict: 0 generates nothing; give 1 or more, or -1", param="n_predict"
        )
    return request


def _stops(fields: NativeFields) -> list[str]:
    return [fields.stop] if isinstance(fields.stop, str) else fields.stop


def _biases(fields: NativeFields) -> dict[str, float]:
    given = fields.logit_bias
    pairs = given.items() if isinstance(given, dict) else given
    return {str(key): _FORBIDDEN if bias is False else float(bias) for key, bias in pairs}
