"""What operators, methods and filters of a chat template cost, charged before they are run.

Growth has to be known beforehand: "x" * 10**9, "{:999999999}".format(1), a replacement longer than
what it replaces, one long text inserted many times. Knows values, not Jinja.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import Any, cast

from headrace.errors import TemplateError
from headrace.text.template_limits import Budget

# Results of integer arithmetic stay below 2**4096: no template computes with more.
_MAX_INT_BITS = 4096
# An indent or separator given to tojson is repeated for every item.
_MAX_JSON_PADDING = 16

_SEQUENCES = (str, bytes, list, tuple)
_PRINTF_FIELD = re.compile(r"%[^A-Za-z%]*")
_FORMAT_FIELD = re.compile(r"\{[^{}]*:([^{}]*)")
# A width that is itself a value: "%*d", "{:{}}".
_VALUE_AS_WIDTH = re.compile(r"%[^A-Za-z%]*\*|\{[^{}]*:[^{}]*\{")
_DIGITS = re.compile(r"\d+")

# Filters that look at a value's items but neither print nor compare what these hold.
_SHALLOW_FILTERS = frozenset(
    ("length", "count", "first", "last", "list", "map", "select", "reject", "selectattr")
).union(
    ("rejectattr", "items", "default", "d", "reverse", "batch", "slice", "attr", "random"),
    ("sum", "abs", "int", "float", "round", "safe"),
)
# Filters that look at, and print, about what the value holds: charged by its whole tree.
_WHOLE_FILTERS = frozenset(
    ("capitalize", "center", "dictsort", "e", "escape", "filesizeformat", "forceescape", "groupby")
).union(
    ("lower", "max", "min", "pprint", "sort", "string", "striptags", "title", "trim", "truncate"),
    ("unique", "upper", "urlencode", "wordcount", "xmlattr"),
)
_DEFAULTS = frozenset(("default", "d", "int", "float"))


def charge_operator(budget: Budget, operator: str, left: Any, right: Any) -> None:
    """Charge one of + * ** %."""
    if operator == "+" and isinstance(left, _SEQUENCES) and isinstance(right, _SEQUENCES):
        _charge_length(budget, left, len(left) + len(right))
    elif operator == "*":
        _charge_product(budget, left, right)
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        budget.check_number(right)
        _check_bits(left.bit_length() * max(right, 0))
        budget.charge()
    elif operator == "%" and isinstance(left, (str, bytes)):
        _charge_format(budget, str(left), _PRINTF_FIELD, right)
    else:
        budget.charge()


def _charge_product(budget: Budget, left: Any, right: Any) -> None:
    for sequence, times in ((left, right), (right, left)):
        if isinstance(sequence, _SEQUENCES) and isinstance(times, int):
            _charge_length(budget, sequence, len(sequence) * max(times, 0))
            return
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())
    budget.charge()


def _charge_length(budget: Budget, kind: Any, length: int) -> None:
    if isinstance(kind, (str, bytes)):
        budget.charge_chars(length)
    else:
        budget.charge_items(length)


def _check_bits(bits: int) -> None:
    if bits > _MAX_INT_BITS:
        raise TemplateError(
            f"the chat template computes a number of {bits} bits; at most {_MAX_INT_BITS} are "
            "allowed"
        )


def charge_method(
    budget: Budget, method: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Charge a bound method; give its arguments, iterators among them turned into lists."""
    owner = method.__self__
    name = getattr(method, "__name__", "")
    args = tuple(_sized(budget, arg) for arg in args)
    budget.charge_value(owner)
    for arg in (*args, *kwargs.values()):
        budget.charge_tree(arg)
    if isinstance(owner, (str, bytes)):
        if name in ("format", "format_map"):
            _charge_format(budget, str(owner), _FORMAT_FIELD, (*args, *kwargs.values()))
            return args
        if name == "translate":
            raise TemplateError("the chat template uses str.translate; use replace instead")
        for arg in (*args, *kwargs.values()):
            budget.check_number(arg)
        _charge_text_method(budget, name, owner, args)
    return args


def _charge_text_method(budget: Budget, name: str, owner: Any, args: tuple[Any, ...]) -> None:
    if name == "replace" and len(args) >= 2:
        _charge_replace(budget, owner, args[0], args[1])
    elif name == "join" and args:
        budget.charge_chars(budget.charge_tree(args[0]) + len(owner) * _length(args[0]))
    elif name == "expandtabs":
        budget.charge_chars(len(owner) + owner.count("\t") * int(args[0] if args else 8))


def _charge_replace(budget: Budget, text: Any, old: Any, new: Any) -> None:
    if isinstance(text, (str, bytes)) and isinstance(old, type(text)):
        growth = max(0, _length(new) - len(old))
        budget.charge_chars(len(text) + (text.count(cast(Any, old)) * growth if growth else 0))


def _charge_format(budget: Budget, text: str, fields: re.Pattern[str], values: Any) -> None:
    """Charge formatting: every field may print the largest value, padded to its width."""
    widths = sum(int(digits) for field in fields.findall(text) for digits in _DIGITS.findall(field))
    if _VALUE_AS_WIDTH.search(text):
        for value in values if isinstance(values, tuple) else (values,):
            budget.check_number(value)
    count = text.count("%") + text.count("{")
    budget.charge_chars(len(text) + widths + count * budget.charge_tree(values))


def charge_filter(
    budget: Budget, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Charge a filter; args[0] is the value. Give the arguments, iterators turned into lists where
    their length has to be known."""
    value, rest = args[0], (*args[1:], *kwargs.values())
    for arg in rest:
        if isinstance(arg, int) and name not in _DEFAULTS:
            budget.check_number(arg)
            budget.charge_items(abs(arg))
        else:
            budget.charge_value(arg)
    if name in _SHALLOW_FILTERS:
        budget.charge_value(value)
        if name == "sum" and any(isinstance(arg, _SEQUENCES) for arg in _starts(args, kwargs)):
            raise TemplateError("the chat template sums lists or texts; join them instead")
        return args
    args = (_sized(budget, value), *args[1:])
    size = budget.charge_tree(args[0])
    special = _FILTERS.get(name)
    if special is not None:
        special(budget, args[0], size, rest)
    return args


def _starts(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterable[Any]:
    return (*args[2:3], *(v for k, v in kwargs.items() if k == "start"))


def _filter_join(budget: Budget, value: Any, size: int, rest: tuple[Any, ...]) -> None:
    budget.charge_chars(size + _longest(rest) * _length(value))


def _filter_replace(budget: Budget, value: Any, size: int, rest: tuple[Any, ...]) -> None:
    if len(rest) >= 2:
        _charge_replace(budget, str(value), rest[0], rest[1])


def _filter_lines(budget: Budget, value: Any, size: int, rest: tuple[Any, ...]) -> None:
    numbers = [arg for arg in rest if isinstance(arg, int)]
    lines = str(value).count("\n") + 1
    budget.charge_chars(size + lines * max([_longest(rest), 4, *numbers]))


def _filter_wrap(budget: Budget, value: Any, size: int, rest: tuple[Any, ...]) -> None:
    budget.charge_chars(size * max(1, _longest(rest)))


def _filter_format(budget: Budget, value: Any, size: int, rest: tuple[Any, ...]) -> None:
    _charge_format(budget, str(value), _PRINTF_FIELD, rest)


def _filter_json(budget: Budget, value: Any, size: int, rest: tuple[Any, ...]) -> None:
    paddings = [len(part) for arg in rest if isinstance(arg, (tuple, list, str)) for part in arg]
    numbers = [arg for arg in rest if isinstance(arg, int)]
    if max([0, _longest(rest), *paddings, *numbers]) > _MAX_JSON_PADDING:
        raise TemplateError(
            f"the chat template indents or separates JSON by more than {_MAX_JSON_PADDING} "
            "characters"
        )


_FILTERS: dict[str, Callable[[Budget, Any, int, tuple[Any, ...]], None]] = {
    "join": _filter_join,
    "replace": _filter_replace,
    "indent": _filter_lines,
    "wordwrap": _filter_wrap,
    "format": _filter_format,
    "tojson": _filter_json,
}

ACCOUNTED_FILTERS = _SHALLOW_FILTERS | _WHOLE_FILTERS | frozenset(_FILTERS)
"""Filters whose cost is known here. urlize is left out: it walks whole trees of its arguments to
make links, which no prompt needs."""


def _sized(budget: Budget, value: Any) -> Any:
    """The value, or its items as a list where it can be read only once."""
    if isinstance(value, Sized) or not hasattr(value, "__next__"):
        return value
    items = []
    for item in value:
        budget.charge()
        items.append(item)
    return items


def _length(value: Any) -> int:
    return len(value) if isinstance(value, Sized) else 1


def _longest(values: tuple[Any, ...]) -> int:
    return max((len(value) for value in values if isinstance(value, str)), default=0)
