"""Ollama's `options`: those that other APIs have too, under their names of the neutral form.

Options without a neutral form (num_ctx, mirostat, ...) and values without one stay in the call's
extra, under "options". A num_predict of -1 or -2 is unlimited, so there is no max_tokens.
"""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.ollama.request.fields import Fields
from headrace.protocol.neutral.call import ChatCall

_NUMBERS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "min_p": "min_p",
    "repeat_penalty": "repetition_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}
_INTEGERS = {"num_predict": "max_tokens", "top_k": "top_k", "seed": "seed"}


def read_options(options: Fields) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields of a ChatCall by name, and the options that have no neutral form."""
    said: dict[str, Any] = {}
    for name, neutral in _NUMBERS.items():
        said[neutral] = options.number(name)
    for name, neutral in _INTEGERS.items():
        said[neutral] = options.integer(name)
    said["stop"] = _stop(options)
    said = {name: value for name, value in said.items() if value is not None}
    rest = {name: value for name, value in options.rest().items() if value is not None}
    if said.get("max_tokens", 1) < 1:
        rest["num_predict"] = said.pop("max_tokens")
    return said, rest


def write_options(call: ChatCall) -> dict[str, Any]:
    """The options that say what `call` does; {} if it says none."""
    said = {name: getattr(call, neutral) for name, neutral in (_NUMBERS | _INTEGERS).items()}
    said["stop"] = list(call.stop) or None
    return {name: value for name, value in said.items() if value is not None}


def _stop(options: Fields) -> tuple[str, ...] | None:
    value = options.raw("stop")
    if value is None:
        return None
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise options.wrong("stop", value, "a string or a list of strings")
