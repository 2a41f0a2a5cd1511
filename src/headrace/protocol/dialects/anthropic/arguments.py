"""A tool call's arguments: text in the neutral form, an object `input` in this dialect.

Other models may write arguments that are no JSON object. They go on in an object whose one field
is INVALID_JSON, as Anthropic's page on fine-grained tool streaming asks for ("handling invalid
JSON in tool responses"), and come out of it again as they were.
"""

from __future__ import annotations

import msgspec

from headrace.protocol.dialects.anthropic.values import decoded, encoded

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
