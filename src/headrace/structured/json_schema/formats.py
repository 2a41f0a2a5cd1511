"""What `format` asks for: of texts, and of numbers.

A format of JSON Schema is of texts and says nothing about other values. Those of numbers are
OpenAPI's: they are the range of a number, or nothing that JSON could show.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.structured.json_schema.bounds import MOST
from headrace.structured.json_schema.keywords import TYPES
from headrace.structured.json_schema.patterns import rewritten

FORMATS = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"}
)
"""Formats of texts that are enforced; any other of a text is refused."""

_RANGES: Mapping[str, tuple[int, int] | None] = {
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32)},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32)},
    "int64": (-MOST, MOST),
    "uint64": (0, MOST),
    "float": None,
    "double": None,
}
"""The least and the greatest of whole numbers; None for any number. Beyond MOST no bound could be
held exactly."""

NUMBER_FORMATS = frozenset(_RANGES)

_LEAP = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29"
_DAY = "([0-9]{4}-(0[13-9]|1[0-2])-[0-9]{2}|[0-9]{4}-02-([01][0-9]|2[0-8])|" + _LEAP + ")"
_SECONDS = "[0-9]{2}:[0-9]{2}:[0-5][0-9]"
_STRICTER = {
    "date": f"^{_DAY}$",
    "date-time": f"^{_DAY}.{_SECONDS}",
    "time": f"^{_SECONDS}",
    "hostname": "^[A-Za-z0-9]+([.-][A-Za-z0-9]+)*$",
    "email": "^[^@]{1,64}@([^@.]{1,63}[.])*[^@.]{1,63}$",
}
"""What has to hold beside a format: the days of February, no leap second, no encoded name, and how
long the parts of an address may be (RFC 5321)."""
_MAX_HOSTNAME = 253


def stricter_than(form: object) -> dict[str, Any] | None:
    """What the walk says beside a format; None where nothing is to be said."""
    if not isinstance(form, str) or form not in _STRICTER:
        return None
    stricter: dict[str, Any] = {"pattern": rewritten(_STRICTER[form])}
    if form == "hostname":
        stricter["maxLength"] = _MAX_HOSTNAME
    return stricter


def settle_format(schema: dict[str, Any]) -> bool:
    """Write a format of numbers out as bounds, and drop one that says nothing about a schema's
    types; whether what is left of it is enforced. Takes a schema whose keywords have their kinds.
    """
    form = schema.get("format")
    if form is None:
        return True
    stated = schema.get("type")
    types = {stated} if isinstance(stated, str) else set(stated or ("number", "string"))
    if form in _RANGES and types & {"integer", "number"}:
        if (ends := _RANGES[form]) is not None:
            _bound(schema, *ends)
    elif "string" in types:
        return form in FORMATS
    del schema["format"]
    return True


def _bound(schema: dict[str, Any], least: int, most: int) -> None:
    """Hold the numbers of a schema to whole ones of a range, where its own bounds do not."""
    if isinstance(stated := schema.get("type"), str):
        schema["type"] = "integer"
    elif stated is not None:
        schema["type"] = ["integer" if name == "number" else name for name in stated]
    else:
        schema["type"] = [name for name in TYPES if name != "number"]
    for including, excluding, end, sign in (
        ("minimum", "exclusiveMinimum", least, 1),
        ("maximum", "exclusiveMaximum", most, -1),
    ):
        excluded = schema.get(excluding)
        if (
            not isinstance(excluded, bool)
            and excluded is not None
            and sign * excluded >= sign * end
        ):
            continue
        if including not in schema or sign * schema[including] < sign * end:
            schema[including] = end
            if excluded is True:  # of draft 4, and of the bound that stood here
                del schema[excluding]
