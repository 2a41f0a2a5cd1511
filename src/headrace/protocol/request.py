"""From the bytes of a body to a checked request: exact or refused.

Every key of the JSON object is one of three: honoured (a field of the endpoint's struct), known
(in its table of fields that are not honoured yet, with the values that change nothing, and those
that are only hints), or unknown. A known field with another value is refused, naming it; a hint and
an unknown field are accepted and reported, so that the server can name them in a header. Null means
absent; of duplicate keys the last counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from headrace.errors import RequestError, bound_code
from headrace.protocol.body_bounds import DEFAULT_BOUNDS, BodyBounds
from headrace.protocol.body_json import decode_object

T = TypeVar("T", bound=msgspec.Struct)

MISSING_FIELD = "missing_required_parameter"
INVALID_TYPE = "invalid_type"
INVALID_VALUE = "invalid_value"

_PATH = re.compile(r" - at `(?:key in )?\$?(.*)`$")
_REQUIRED = re.compile(r"^Object missing required field `([^`]+)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_SHOWN_CHARS = 80
# Unknown names that are kept: a header has room for fewer, and clients may send half a million.
_MAX_IGNORED = 1000


@dataclass(frozen=True)
class Known:
    """A field of the API that is not honoured, and when it is harmless."""

    name: str
    accepts: tuple[object, ...] | type
    """The values that request what happens anyway, or a type all of whose values do."""
    why: str
    """What those values mean here, for people."""
    instead: str = ""
    """What does here what any other value asks for; "" for nothing."""
    hints: tuple[object, ...] | type = ()
    """Values whose answer serves as well without what they ask for (a style, a class of service),
    or a type all of whose values do: accepted, without effect, and reported."""

    @property
    def accepted(self) -> str:
        """The values that are not refused, as text."""
        return " or ".join(text for text in map(_listed, (self.accepts, self.hints)) if text)

    def is_hint(self, value: object, path: str) -> bool:
        """Whether `value` is a hint, which has no effect; False for one that changes nothing.

        Raises RequestError for any other.
        """
        if _is_among(value, self.accepts):
            return False
        if _is_among(value, self.hints):
            return True
        remedy = f"accepted: {self.accepted}" if self.accepted else "omit it"
        if self.instead:
            remedy = f"use {self.instead} ({remedy})"
        raise RequestError(
            f"{path}: {_shown(value)} is not supported; {remedy}", param=path, code="unsupported"
        )


def _is_among(value: object, values: tuple[object, ...] | type) -> bool:
    if isinstance(values, type):
        return type(value) is values
    return any(_same(value, other) for other in values)


def _listed(values: tuple[object, ...] | type) -> str:
    if isinstance(values, type):
        return f"any {_KIND_NAMES[values]}"
    return " or ".join(_shown(value) for value in values)


_KIND_NAMES = {str: "string", bool: "boolean", dict: "object", list: "list"}


def _nothing(_request: Any) -> None:
    return None


@dataclass(frozen=True)
class Nested:
    """Keys of a field that is an object or a list of objects, sorted out as an endpoint's are."""

    honoured: frozenset[str]
    known: Mapping[str, Known] = field(default_factory=dict)
    nested: Mapping[str, Nested] = field(default_factory=dict)
    check: Callable[[Mapping[str, Any], str], None] | None = None
    """A rule over the keys of an object before its types are looked at: it is given their values
    and the object's path, and raises RequestError."""


@dataclass(frozen=True, eq=False)
class Endpoint(Generic[T]):
    """The fields of an endpoint."""

    path: str
    struct: type[T]
    known: Mapping[str, Known] = field(default_factory=dict)
    """Table of fields that are not honoured."""
    nested: Mapping[str, Nested] = field(default_factory=dict)
    """The fields within a field."""
    check: Callable[[T], None] = _nothing
    """Rules over several fields; raises RequestError."""

    @cached_property
    def honoured(self) -> Mapping[str, None]:
        """Names of the fields that are honoured, in order."""
        # Finding them out evaluates every annotation: as long as the rest of a request takes.
        return dict.fromkeys(field.encode_name for field in msgspec.structs.fields(self.struct))


class Parsed(NamedTuple, Generic[T]):
    """A request, and the sorted names of the fields that were accepted and have no effect.

    Of very many such names the first thousand are told.
    """

    request: T
    ignored: tuple[str, ...]


def parse_request(
    body: bytes | bytearray | memoryview,
    endpoint: Endpoint[T],
    bounds: BodyBounds = DEFAULT_BOUNDS,
) -> Parsed[T]:
    """Decode and check the body of a request; raises RequestError naming the field at fault.

    bounds: what is checked before decoding.
    """
    values, ignored = _sorted_out(decode_object(body, bounds=bounds), endpoint)
    return Parsed(parse_values(values, endpoint), tuple(sorted(ignored)))


def parse_values(values: dict[str, Any], endpoint: Endpoint[T]) -> T:
    """The request of honoured fields alone, checked; raises RequestError as `parse_request`."""
    try:
        request = msgspec.convert(values, endpoint.struct)
    except msgspec.ValidationError as error:
        raise _readable(str(error), values) from None
    except RecursionError:
        raise RequestError("the body is nested too deeply") from None
    endpoint.check(request)
    return request


def _sorted_out(values: dict[str, Any], endpoint: Endpoint[T]) -> tuple[dict[str, Any], set[str]]:
    """The honoured fields and the names of unknown ones; known ones are checked and dropped."""
    honoured = endpoint.honoured
    kept: dict[str, Any] = {}
    ignored: set[str] = set()
    for name, value in values.items():
        if name in honoured:
            if value is not None:
                kept[name] = value
                if name in endpoint.nested:
                    _look_into(value, endpoint.nested[name], name, name, ignored)
        elif name in endpoint.known:
            if value is not None and endpoint.known[name].is_hint(value, name):
                ignored.add(name)
        elif len(ignored) < _MAX_IGNORED:
            ignored.add(name)
    return kept, ignored


def _look_into(value: object, rules: Nested, path: str, name: str, ignored: set[str]) -> None:
    """Sort out the keys below a field. `path` has list indices, for errors; `name` has not.

    Wrong types are passed over: they are reported, with their path, when the struct is made.
    """
    if isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict):
                _look_into(item, rules, f"{path}[{index}]", f"{name}[]", ignored)
        return
    if not isinstance(value, dict):
        return
    if rules.check is not None:
        rules.check(value, path)
    for key, inner in value.items():
        if inner is None:
            continue
        if key in rules.nested:
            _look_into(inner, rules.nested[key], f"{path}.{key}", f"{name}.{key}", ignored)
        elif key in rules.known:
            if rules.known[key].is_hint(inner, f"{path}.{key}"):
                ignored.add(f"{name}.{key}")
        elif key not in rules.honoured and len(ignored) < _MAX_IGNORED:
            ignored.add(f"{name}.{key}")


def _readable(message: str, values: object) -> RequestError:
    """msgspec's message with its JSON path as `param` and the value that was given."""
    path = ""
    if match := _PATH.search(message):
        path = match.group(1).removeprefix(".")
        message = message[: match.start()]
    if missing := _REQUIRED.match(message):
        param = f"{path}.{missing.group(1)}" if path else missing.group(1)
        return RequestError(f"{param}: this field is required", param=param, code=MISSING_FIELD)
    message = message[:1].lower() + message[1:]
    found, value = _value_at(values, path)
    if found:
        message = f"{message.partition(', got ')[0]}, got {_shown(value)}"
    code = _code_of(message)
    return RequestError(f"{path or 'body'}: {message}", param=path or None, code=code)


_BOUND = re.compile(r"^expected `(int|float|str|array|object)` (?:of length )?([<>])")
_KINDS = {"int": "integer", "float": "decimal", "str": "string"}


def _code_of(message: str) -> str:
    """OpenAI's code of what msgspec found: a type, a bound of a number or of a length, or a value
    that is none of some."""
    bound = _BOUND.match(message)
    if bound is not None:
        kind, side = bound.groups()
        return bound_code(_KINDS.get(kind, kind), is_below=side == ">")
    is_type = message.startswith("expected ") and " matching " not in message
    return INVALID_TYPE if is_type else INVALID_VALUE


def _value_at(values: object, path: str) -> tuple[bool, object]:
    """The value a path like `messages[0].role` leads to, if it can be followed to its end."""
    at = 0
    path = "." + path
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return False, None
        key, index = step.group(1), step.group(2)
        if isinstance(values, dict) and key in values:
            values = values[key]
        elif isinstance(values, list) and index is not None and int(index) < len(values):
            values = values[int(index)]
        else:
            return False, None
        at = step.end()
    return True, values


def _same(value: object, other: object) -> bool:
    """Equality of JSON values: 1 and 1.0 are equal, 1 and true are not."""
    return isinstance(value, bool) is isinstance(other, bool) and value == other


def _shown(value: object) -> str:
    """A value as short JSON for an error message."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"
