"""What a caller hands over in Python, made what the engine's messages hold.

A message from the wire is typed by its decoding. Objects of a caller are not: a wrong type would
fail deep in a step, or count as something else (True as 1). Here it is a RequestError that names
the argument, its value and what is expected. Integers are whatever Python takes as an index, those
of NumPy among them, except bool. Ranges, lengths and ids of the model are the matter of `limits`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from reprlib import repr as shortened
from typing import Any

import msgspec
import numpy as np

from headrace.engine.params import MODEL_DEFAULTS, SAMPLERS, RequestParams, SamplingParams
from headrace.engine.sampling_defaults import SamplingDefaults, completed
from headrace.errors import RequestError
from headrace.offline.params import SamplingParams as CallerParams

TOKEN_IDS = "a list of token ids (integers)"
NO_ITEMS = (str, bytes, bytearray, memoryview)
"""Sequences to Python; here text, or bytes that somebody forgot to decode."""


def prompts(value: object) -> list[str | list[int]]:
    """One text, or several texts and lists of token ids."""
    if isinstance(value, str):
        return [value]
    return [
        prompt(one, f"prompts[{index}]")
        for index, one in enumerate(
            _items(value, "prompts", f"a text, or a list of texts or of {TOKEN_IDS}")
        )
    ]


def prompt(value: object, param: str = "prompt") -> str | list[int]:
    """A text or a list of token ids."""
    return value if isinstance(value, str) else _ids(value, param, f"a text or {TOKEN_IDS}")


def params_for(value: object, num_prompts: int, defaults: SamplingDefaults) -> list[SamplingParams]:
    """The parameters of each prompt, from one for all, one per prompt, or None for the defaults."""
    if value is None or isinstance(value, RequestParams):
        return [sampling_params(value, defaults)] * num_prompts
    given = _items(value, "params", "SamplingParams, a list of them (one per prompt) or None")
    if len(given) != num_prompts:
        raise RequestError(
            f"params has {len(given)} entries for {num_prompts} prompts; give one, or one each",
            param="params",
        )
    each = []
    for index, one in enumerate(given):
        if not isinstance(one, RequestParams):
            raise _unexpected(f"params[{index}]", one, "SamplingParams")
        each.append(sampling_params(one, defaults, f"params[{index}]."))
    return each


def sampling_params(value: object, defaults: SamplingDefaults, prefix: str = "") -> SamplingParams:
    """`value` with every field of its declared type; what it leaves out is the model's.

    defaults: the model's. prefix: put before the names of fields in errors.
    """
    if value is None:
        return SamplingParams(**completed(dict.fromkeys(MODEL_DEFAULTS), defaults, SAMPLERS))
    if not isinstance(value, RequestParams):
        raise _unexpected("params", value, "SamplingParams or None")
    fields: dict[str, Any] = {
        name: convert(getattr(value, name), prefix + name) for name, convert in _FIELDS.items()
    }
    given = {name: fields.pop(name) for name in MODEL_DEFAULTS}
    return SamplingParams(**fields, **completed(given, defaults, fields["samplers"]))


def stop_strings(value: object) -> tuple[str, ...]:
    """The stop strings of a request; a lone one counts as a list of one."""
    if isinstance(value, str):
        return (value,)
    given = _items(value, "stop", "a text or a list of texts")
    return tuple(text(one, f"stop[{index}]") for index, one in enumerate(given))


def text(value: object, param: str) -> str:
    """A text."""
    if not isinstance(value, str):
        raise _unexpected(param, value, "a text")
    return value


def integer(value: object, param: str) -> int:
    """An integer."""
    return _integer(value, param)


def number_or_none(value: object, param: str) -> float | None:
    """A number, or None."""
    return None if value is None else _number(value, param, "a number or None")


def messages(value: object) -> Sequence[Any]:
    """The messages of a conversation; what each must hold is the chat template's matter."""
    return _items(value, "messages", "a list of messages, each with role and content")


def _items(value: object, param: str, expected: str) -> Sequence[Any]:
    if isinstance(value, np.ndarray) and value.ndim:
        return list(value)
    if isinstance(value, Sequence) and not isinstance(value, NO_ITEMS):
        return value
    raise _unexpected(param, value, expected)


def _ids(value: object, param: str, expected: str = TOKEN_IDS) -> list[int]:
    given = list(_items(value, param, expected))
    if set(map(type, given)) <= {int}:  # nearly always, and a prompt may be long
        return given
    return [_integer(one, f"{param}[{index}]", "a token id") for index, one in enumerate(given)]


def _stop_ids(value: object, param: str) -> tuple[int, ...]:
    return tuple(_ids(value, param))


def _integer(value: Any, param: str, expected: str = "an integer") -> int:
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise _unexpected(param, value, expected)


def _integer_or_none(value: object, param: str) -> int | None:
    return None if value is None else _integer(value, param, "an integer or None")


def _ids_or_none(value: object, param: str) -> tuple[int, ...] | None:
    return None if value is None else _stop_ids(value, param)


def _sequences(value: object, param: str) -> tuple[tuple[int, ...], ...]:
    given = _items(value, param, f"a list of which each is {TOKEN_IDS}")
    return tuple(_stop_ids(one, f"{param}[{index}]") for index, one in enumerate(given))


def _texts(value: object, param: str) -> tuple[str, ...]:
    given = _items(value, param, "a list of texts")
    return tuple(text(one, f"{param}[{index}]") for index, one in enumerate(given))


def _bias(value: object, param: str) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise _unexpected(param, value, "a mapping from token ids to numbers")
    biases = {}
    for key, bias in value.items():
        token_id = _integer(key, f"{param} key", "a token id")
        place = token_id if token_id.bit_length() <= 64 else "..."
        biases[token_id] = _number(bias, f"{param}[{place}]")
    return biases


def _number(value: object, param: str, expected: str = "a number") -> float:
    if isinstance(value, int) and not isinstance(value, bool):
        return value  # of any size; its range is checked later
    if isinstance(value, (float, np.floating, np.integer)):
        return float(value)
    raise _unexpected(param, value, expected)


def _boolean(value: object, param: str) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise _unexpected(param, value, "True or False")


_CONVERTERS: dict[Any, Callable[[Any, str], object]] = {
    float: _number,
    float | None: number_or_none,
    int: _integer,
    bool: _boolean,
    int | None: _integer_or_none,
    tuple[int, ...]: _stop_ids,
    tuple[int, ...] | None: _ids_or_none,
    tuple[tuple[int, ...], ...]: _sequences,
    tuple[str, ...]: _texts,
    dict[int, float]: _bias,
}

_FIELDS = {field.name: _CONVERTERS[field.type] for field in msgspec.structs.fields(CallerParams)}


def _unexpected(param: str, value: object, expected: str) -> RequestError:
    return RequestError(
        f"{param} is {shortened(value)}; it must be {expected}", param=param, code="invalid_type"
    )
