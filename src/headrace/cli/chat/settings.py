"""Sampling parameters by name, as `/set temperature 0.2` changes them and files keep them."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from headrace.engine.params import RANGES
from headrace.engine.sampling.defaults import SamplingDefaults, in_full
from headrace.errors import ConfigError
from headrace.offline.params import SamplingParams
from headrace.offline.structured import StructuredOutputsParams
from headrace.offline.thinking import BUDGET_RANGE
from headrace.protocol.openai.chat import REASONING_EFFORTS

_FIELDS = {field.name: field for field in msgspec.structs.fields(SamplingParams)}

LIMITS = {
    name: limits
    for name, limits in {**RANGES, "thinking_token_budget": BUDGET_RANGE}.items()
    if name in _FIELDS and name != "choice"
}
"""What can be set, and within which bounds: the numbers of SamplingParams."""

NAMES = tuple(LIMITS)

DEFAULT = SamplingParams(max_tokens=None)
"""What a chat begins with: an answer may be as long as the context allows."""


def changed(params: SamplingParams, name: str, value: object) -> SamplingParams:
    """The parameters with one of them set. value: a number, or a text of one, or "default".

    Raises ConfigError naming the parameter, the value and what is accepted.
    """
    if name not in NAMES:
        raise ConfigError(f"{name!r} cannot be set; {', '.join(NAMES)} can")
    if isinstance(value, str) and value in ("default", "none"):
        return msgspec.structs.replace(params, **{name: getattr(DEFAULT, name)})
    number = _number(name, value)
    if number not in LIMITS[name]:
        raise ConfigError(f"{name} is {value}; it must be {LIMITS[name]}")
    return msgspec.structs.replace(params, **{name: number})


def _number(name: str, value: object) -> float:
    is_float = _FIELDS[name].type in (float, float | None)
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ValueError
        number = float(value) if is_float else int(value)
        if not math.isfinite(number) or (isinstance(value, float) and number != value):
            raise ValueError
    except (ValueError, OverflowError):
        kind = "a number" if is_float else "an integer"
        raise ConfigError(f"{name} is {value!r}; it must be {kind}") from None
    return number


_SWITCHED = {"on": "medium", "off": "none"}


def effort_of(word: str, place: str = "/think") -> str | None:
    """The effort that a person means by a word, one of those that the server takes too; None for
    the model's own. place: where it was typed. Raises ConfigError."""
    effort = _SWITCHED.get(word, word)
    if effort == "default":
        return None
    if effort not in REASONING_EFFORTS:
        levels = ", ".join(REASONING_EFFORTS)
        raise ConfigError(f"{place} {word}: it must be on, off, default or one of {levels}")
    return effort


def shown_effort(effort: str | None) -> str:
    """The effort for people."""
    return "default" if effort is None else effort


def schema(params: SamplingParams) -> Any:
    """The JSON schema that answers are held to; None for free text."""
    form = params.structured_outputs
    return form.json if isinstance(form, StructuredOutputsParams) else None


def of_file(values: dict[str, Any], params: SamplingParams) -> SamplingParams:
    """What a saved conversation names, the defaults for other numbers, and the rest of `params`."""
    for name in NAMES:
        params = changed(params, name, values.get(name, "default"))
    for name in values:
        changed(params, name, values[name])  # raises for a name that cannot be set
    return params


def shown(params: SamplingParams, defaults: SamplingDefaults) -> dict[str, str]:
    """Every parameter that can be set, as text; what is left to the model with the model's value.

    defaults: the model's.
    """
    of_model = in_full(defaults)
    texts = {}
    for name in NAMES:
        value = getattr(params, name)
        texts[name] = str(value)
        if value is None:
            texts[name] = f"default ({of_model[name]:g})" if name in of_model else "default"
    return texts


def chosen(params: SamplingParams) -> dict[str, Any]:
    """Those that are not the defaults."""
    return {
        name: getattr(params, name)
        for name in NAMES
        if getattr(params, name) != getattr(DEFAULT, name)
    }
