"""Values of a caller in Python, made the types that the engine's messages have.

A wrong type is a RequestError that names the argument, its value and what is expected. Integers are
whatever Python takes as an index, those of NumPy among them, except bool.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from reprlib import repr as shortened
from typing import Any

import numpy as np

from headrace.engine.params import ThinkingBudget
from headrace.errors import RequestError
from headrace.structured.grammar import Grammar

TOKEN_IDS = "a list of token ids (integers)"
NO_ITEMS = (str, bytes, bytearray, memoryview)
"""Sequences to Python; here text, or bytes that somebody forgot to decode."""


def text(value: object, param: str) -> str:
    """A text."""
    if not isinstance(value, str):
        raise unexpected(param, value, "a text")
    return value


def number_or_none(value: object, param: str) -> float | None:
    """A number, or None."""
    return None if value is None else _number(value, param, "a number or None")


def items(value: object, param: str, expected: str) -> Sequence[Any]:
    """A sequence of whatever, but not a text and not bytes."""
    if isinstance(value, np.ndarray) and value.ndim:
        return list(value)
    if isinstance(value, Sequence) and not isinstance(value, NO_ITEMS):
        return value
    raise unexpected(param, value, expected)


def ids(value: object, param: str, expected: str = TOKEN_IDS) -> list[int]:
    """Token ids."""
    given = list(items(value, param, expected))
    if set(map(type, given)) <= {int}:  # nearly always, and a prompt may be long
        return given
    return [integer(item, f"{param}[{index}]", "a token id") for index, item in enumerate(given)]


def _stop_ids(value: object, param: str) -> tuple[int, ...]:
    return tuple(ids(value, param))


def integer(value: Any, param: str, expected: str = "an integer") -> int:
    """An integer."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise unexpected(param, value, expected)


def _integer_or_none(value: object, param: str) -> int | None:
    return None if value is None else integer(value, param, "an integer or None")


def _ids_or_none(value: object, param: str) -> tuple[int, ...] | None:
    return None if value is None else _stop_ids(value, param)


def _sequences(value: object, param: str) -> tuple[tuple[int, ...], ...]:
    given = items(value, param, f"a list of which each is {TOKEN_IDS}")
    return tuple(_stop_ids(item, f"{param}[{index}]") for index, item in enumerate(given))


def _texts(value: object, param: str) -> tuple[str, ...]:
    given = items(value, param, "a list of texts")
    return tuple(text(item, f"{param}[{index}]") for index, item in enumerate(given))


def _bias(value: object, param: str) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise unexpected(param, value, "a mapping from token ids to numbers")
    biases = {}
    for key, bias in value.items():
        token_id = integer(key, f"{param} key", "a token id")
        place = token_id if token_id.bit_length() <= 64 else "..."
        biases[token_id] = _number(bias, f"{param}[{place}]")
    return biases


def _number(value: object, param: str, expected: str = "a number") -> float:
    if isinstance(value, int) and not isinstance(value, bool):
        return value  # of any size; its range is checked later
    if isinstance(value, (float, np.floating, np.integer)):
        return float(value)
    raise unexpected(param, value, expected)


def boolean(value: object, param: str) -> bool:
    """True or False."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise unexpected(param, value, "True or False")


def _grammar_or_none(value: object, param: str) -> Grammar | None:
    if value is None:
        return None
    if isinstance(value, Grammar):
        from headrace.structured.json_schema.grammar import walked

        return walked(value, param)
    raise unexpected(param, value, "a Grammar or None")


def _thinking_or_none(value: object, param: str) -> ThinkingBudget | None:
    if value is None:
        return None
    if not isinstance(value, ThinkingBudget):
        raise unexpected(param, value, "a ThinkingBudget or None")
    return ThinkingBudget(
        max_tokens=integer(value.max_tokens, f"{param}.max_tokens"),
        end_ids=_stop_ids(value.end_ids, f"{param}.end_ids"),
        is_open=boolean(value.is_open, f"{param}.is_open"),
        begin_ids=_stop_ids(value.begin_ids, f"{param}.begin_ids"),
        other_end_ids=_sequences(value.other_end_ids, f"{param}.other_end_ids"),
        masked_ids=_stop_ids(value.masked_ids, f"{param}.masked_ids"),
    )


CONVERTERS: dict[Any, Callable[[Any, str], object]] = {
    float: _number,
    float | None: number_or_none,
    int: integer,
    bool: boolean,
    int | None: _integer_or_none,
    tuple[int, ...]: _stop_ids,
    tuple[int, ...] | None: _ids_or_none,
    tuple[tuple[int, ...], ...]: _sequences,
    tuple[str, ...]: _texts,
    dict[int, float]: _bias,
    Grammar | None: _grammar_or_none,
    ThinkingBudget | None: _thinking_or_none,
}
"""By the type of a field, as it is declared."""


def unexpected(param: str, value: object, expected: str) -> RequestError:
    """The refusal of a value of another type."""
    return RequestError(
        f"{param} is {shortened(value)}; it must be {expected}", param=param, code="invalid_type"
    )
