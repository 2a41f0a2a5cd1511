"""The JSON of a request's body, within bounds; whatever is wrong with it is a RequestError.

Every dialect decodes its bodies here, so that the same bytes are refused for the same reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from headrace.errors import RequestError, shown
from headrace.protocol.body_bounds import DEFAULT_BOUNDS, TOO_COMPLEX, BodyBounds, check_bounds

INVALID_JSON = "invalid_json"

# An escape in a JSON string, a surrogate pair being one.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|u(?P<lone>[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_SHOWN_BYTES = 80
# How msgspec begins what it says of the only type that a decoder here may demand.
_NOT_AN_OBJECT = "Expected `object`"


def decode_object(
    body: bytes | bytearray | memoryview,
    decode: Callable[[bytes | bytearray | memoryview], Any] = msgspec.json.decode,
    *,
    bounds: BodyBounds = DEFAULT_BOUNDS,
) -> dict[str, Any]:
    """The object that a body is.

    `decode` may leave values encoded. Raises RequestError: codes body_too_complex and invalid_json.
    """
    check_bounds(body, bounds)
    if not body:
        raise RequestError(
            "the body is not valid JSON: it is empty; a JSON object is required", code=INVALID_JSON
        )
    try:
        values = decode(body)
    except RecursionError:
        raise RequestError("the body is nested too deeply", code=TOO_COMPLEX) from None
    except msgspec.ValidationError as error:
        if not str(error).startswith(_NOT_AN_OBJECT):  # an integer of thousands of digits
            raise RequestError(f"the body cannot be read: {error}", code=INVALID_JSON) from None
        values = None
    except ValueError as error:  # of msgspec, and what is not UTF-8
        problem = lone_surrogate(body) or error
        raise RequestError(f"the body is not valid JSON: {problem}", code=INVALID_JSON) from None
    if not isinstance(values, dict):
        start = bytes(body[:_SHOWN_BYTES]).decode(errors="replace")
        raise RequestError(f"the body must be a JSON object, not {shown(start)}", code=INVALID_JSON)
    return values


def lone_surrogate(body: bytes | bytearray | memoryview) -> str | None:
    """The message for half a surrogate pair, which the decoder takes for a cut body, or None."""
    for escape in _ESCAPE.finditer(body):
        if lone := escape["lone"]:
            return (
                f"\\u{lone.decode()} (byte {escape.start()}) is half of a surrogate pair and "
                "not a character; send both halves, or the character itself in UTF-8"
            )
    return None
