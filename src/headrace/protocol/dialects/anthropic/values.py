"""The API's words, and JSON at the dialect's edge: bytes to values and back, values of their kind.

A tool call's arguments are text in the neutral form, an object `input` in this dialect. Other
models may write arguments that are not a JSON object. They go on in an object whose one field is
INVALID_JSON, as Anthropic's page on fine-grained tool streaming asks for ("handling invalid JSON in
tool responses"), and come out of it again as they were.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.protocol.dialects.token_count import as_tokens

NAME = "anthropic"

VERSION = "2023-06-01"
"""Of the API, sent as the header anthropic-version."""

MESSAGES_PATH = "/v1/messages"
COUNT_PATH = "/v1/messages/count_tokens"

BETAS = "betas"
"""Field of ChatCall.extra with the list of the header anthropic-beta, which goes on as it came."""


def header(headers: Mapping[str, str], name: str) -> str:
    """A header's value by its name in lower case; "" without it."""
    if name in headers:
        return headers[name]
    return next((value for key, value in headers.items() if key.lower() == name), "")


def encoded(value: object) -> bytes:
    """JSON of what came from JSON, also of integers beyond 64 bits, which msgspec refuses."""
    try:
        return msgspec.json.encode(value)
    except OverflowError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_unraw).encode()


def decoded(body: bytes | str) -> Any:
    """Raises ValueError for what is no JSON, or too deep to be read."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def text(value: object) -> str:
    """A string of a reply; "" for anything else."""
    return value if isinstance(value, str) else ""


def mapping(value: object) -> dict[str, Any]:
    """An object of a reply; {} for anything else."""
    return value if isinstance(value, dict) else {}


def count(value: object) -> int | None:
    """A number of tokens; None for what cannot be one."""
    return as_tokens(value)


def rest(value: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """The fields that are said (not null) and not `known`."""
    return {key: field for key, field in value.items() if key not in known and field is not None}


def _unraw(value: object) -> Any:
    if isinstance(value, msgspec.Raw):
        return json.loads(bytes(value))
    raise TypeError(f"{type(value).__name__} is not JSON")


_INVALID = "INVALID_JSON"


def input_of(arguments: str) -> msgspec.Raw:
    """The object for `input`, byte for byte as the model wrote it if it wrote one."""
    if not arguments or arguments.isspace():
        return msgspec.Raw(b"{}")
    try:
        value = decoded(arguments)
    except ValueError:
        value = arguments
    if isinstance(value, dict):
        return msgspec.Raw(arguments.encode())
    if value is None:
        return msgspec.Raw(b"{}")
    return msgspec.Raw(encoded({_INVALID: arguments}))


def arguments_of(input: object) -> str:
    """The text of an `input`; anything but an object is written unchanged."""
    if isinstance(input, dict) and len(input) == 1 and isinstance(input.get(_INVALID), str):
        return str(input[_INVALID])
    return encoded({} if input is None else input).decode()
