"""Fields of a client's request, of the kind that the API says or refused by name."""

from __future__ import annotations

import math
from typing import Any

from headrace.errors import RequestError, shown
from headrace.protocol.body_bounds import TOO_COMPLEX
from headrace.protocol.body_json import decode_object
from headrace.protocol.dialects.openai_responses.values import MAX_DEPTH, too_deep

Holder = dict[str, Any]


def request_object(body: bytes) -> Holder:
    """The JSON object that a request's body is."""
    value = decode_object(body)
    if too_deep(value, body):
        raise RequestError(
            f"the body is nested more than {MAX_DEPTH} levels deep", code=TOO_COMPLEX
        )
    return value


def wrong(path: str, wanted: str, value: object) -> RequestError:
    """The error for a value of another kind than `wanted`."""
    return RequestError(
        f"{path}: expected {wanted}, got {shown(value)}", param=path, code="invalid_type"
    )


def missing(path: str, remedy: str = "") -> RequestError:
    """The error for a field that has to be there."""
    text = f"{path}: this field is required"
    return RequestError(
        f"{text}; {remedy}" if remedy else text, param=path, code="missing_required_parameter"
    )


def string(holder: Holder, name: str, at: str = "") -> str | None:
    """A string, None if it is not said. at: the holder's own path, ending in "."."""
    value = holder.get(name)
    if value is None or isinstance(value, str):
        return value
    raise wrong(at + name, "a string", value)


def required_string(holder: Holder, name: str, at: str = "") -> str:
    """A string that must be there."""
    value = string(holder, name, at)
    if value is None:
        raise missing(at + name)
    return value


def boolean(holder: Holder, name: str, at: str = "") -> bool | None:
    """True or false, None if it is not said."""
    value = holder.get(name)
    if value is None or isinstance(value, bool):
        return value
    raise wrong(at + name, "true or false", value)


def number(holder: Holder, name: str, most: float) -> float | None:
    """A finite number between 0 and `most`."""
    value = holder.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong(name, "a number", value)
    if not (0 <= value <= most and math.isfinite(value)):
        raise RequestError(
            f"{name}: {shown(value)} is not between 0 and {most:g}",
            param=name,
            code="invalid_value",
        )
    return value


def integer(
    holder: Holder, name: str, least: int, most: int = 2**48, *, at: str = ""
) -> int | None:
    """A whole number of at least `least`. at: as of `string`."""
    value = holder.get(name)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) <= most:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(at + name, "an integer", value)
    if not least <= value <= most:
        raise RequestError(
            f"{at + name}: {shown(value)} is not between {least} and {most}",
            param=at + name,
            code="invalid_value",
        )
    return value


def mapping_of(holder: Holder, name: str, at: str = "") -> Holder | None:
    """An object, None if it is not said."""
    value = holder.get(name)
    if value is None or isinstance(value, dict):
        return value
    raise wrong(at + name, "an object", value)


def objects_of(holder: Holder, name: str, at: str = "") -> list[Holder]:
    """A list of objects, [] if it is not said."""
    value = holder.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise wrong(at + name, "a list", value)
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise wrong(f"{at}{name}[{index}]", "an object", item)
    return value


def strings_of(holder: Holder, name: str) -> list[str]:
    """A list of strings, [] if it is not said."""
    value = holder.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise wrong(name, "a list of strings", value)
    for index, item in enumerate(value):
        if not isinstance(item, str):
            raise wrong(f"{name}[{index}]", "a string", item)
    return value
