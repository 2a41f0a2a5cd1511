"""From a schema to the grammar of its JSON, with the options that every schema has here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.errors import RequestError, shown
from headrace.structured.grammar import Grammar
from headrace.structured.json_schema.bounds import bounded
from headrace.structured.json_schema.walk import check_schema
from headrace.structured.limits import DEFAULT as LIMITS
from headrace.structured.limits import GRAMMAR_TOO_LARGE, composed_parts

INVALID_VALUE = "invalid_value"
UNSUPPORTED = "unsupported"

COMPACT: Mapping[str, object] = {
    # Answers are compact: where white space is free nothing is ever forced, and a model may go on
    # writing it for ever.
    "whitespace_flexible": False,
    "item_separator": ",",
    "key_separator": ":",
    # Without \uXXXX every text has one spelling, and no property can be named twice in two.
    "json_allowed_escapes": 'nrbtf\\"',
}
MAX_WHITE_SPACE = 8
"""Characters at one place, where a client asks for white space."""

_SPACE_CHARACTER = re.compile(r"\\[nrts]|[ \n\r\t]")
_WHITE_SPACE = re.compile(
    r"(?:(?P<one>\\[nrts]|[ \n\r\t])|\[(?P<several>(?:\\[nrts]|[ \n\r\t])+)\])"
    r"(?P<times>[?*+]|\{\d*,?(?P<most>\d{0,4})\})?"
)
_NAMED_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions"})
_VALUES = frozenset({"const", "default", "enum", "examples"})

SPACED: Mapping[str, object] = {**COMPACT, "item_separator": ", ", "key_separator": ": "}
"""Options of a schema whose JSON is as templates render it: the arguments of calls."""


def of_schema(schema: object, param: str, options: Mapping[str, object] = COMPACT) -> Grammar:
    """The grammar of a schema's JSON, compact if the options do not say otherwise; the schema may
    be JSON in a text."""
    _check_size(schema, param)
    if isinstance(schema, str):
        try:
            schema = msgspec.json.decode(schema)
        except (msgspec.DecodeError, RecursionError) as error:
            raise _invalid(param, f"is not JSON: {error}") from None
    checked = check_schema(schema, param)
    checked.pop("x-guidance", None)  # the client's own could switch refusals off
    checked = bounded(checked)
    return Grammar("json_schema", json_text({**checked, "x-guidance": options}, param))


def _check_size(schema: object, param: str) -> None:
    """Refuse what is too large before it is walked, which takes 20 times as long as writing it."""
    try:
        size = _least_size(schema)
        if size <= LIMITS.text_bytes and not isinstance(schema, str):
            size = len(msgspec.json.encode(schema))
    except (UnicodeEncodeError, RecursionError, TypeError, ValueError, OverflowError):
        return  # the walk finds what is wrong with it
    if size > LIMITS.text_bytes:
        raise RequestError(
            f"{param} has {size} bytes of JSON or more; at most {LIMITS.text_bytes} are accepted. "
            "Shorten it.",
            param=param,
            code=GRAMMAR_TOO_LARGE,
        )


def _least_size(schema: object) -> int:
    """What its JSON has at least: the characters of its texts and one for each other value, as far
    as the limit. To write all of 10 MB keeps the interpreter's lock for as long as many steps take.
    """
    size = 0
    pending = [schema]
    while pending and size <= LIMITS.text_bytes:
        value = pending.pop()
        size += len(value) if isinstance(value, str) else 1
        if isinstance(value, dict):
            size += sum(len(name) for name in value if isinstance(name, str))
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return size


def walked(grammar: Grammar, param: str) -> Grammar:
    """A grammar that somebody made by hand; a schema is checked as `of_schema` does, and has the
    options of every schema. What is walked already stays as it is."""
    if grammar.kind == "json_schema":
        return of_schema(grammar.text, param)
    if grammar.kind != "composed":
        return grammar
    parts = composed_parts(grammar, param)
    for part in parts:
        schema = part.get("json_schema")
        if schema is not None:
            options = SPACED if schema.get("x-guidance") == SPACED else COMPACT
            part["json_schema"] = msgspec.json.decode(of_schema(schema, param, options).text)
    return Grammar("composed", json_text({"grammars": parts}, param))


def spaced_by(pattern: object, param: str) -> Mapping[str, object]:
    """The options of a schema whose JSON may have white space as an expression says, at most
    MAX_WHITE_SPACE characters at each place. RequestError for an expression of other characters."""
    found = _WHITE_SPACE.fullmatch(pattern) if isinstance(pattern, str) else None
    if found is None:
        raise RequestError(
            f"{param} is {shown(pattern)}; supported are a space, \\n, \\t, \\r or \\s, or a class "
            "of them, with ?, *, + or {m,n} behind",
            param=param,
            code=UNSUPPORTED,
        )
    characters = found["one"] or found["several"]
    named = {" ": r"\x20", "\\n": r"\x0A", "\\r": r"\x0D", "\\t": r"\x09"}
    named |= {"\n": r"\x0A", "\r": r"\x0D", "\t": r"\x09", "\\s": r"\x20\x0A\x0D\x09"}
    inner = "".join(named[each] for each in _SPACE_CHARACTER.findall(characters))
    times = found["times"] or ""
    # The pattern is for white space that is there; whether it may be missing is llguidance's part.
    most = {"": 1, "?": 1, "*": MAX_WHITE_SPACE, "+": MAX_WHITE_SPACE}.get(times)
    if most is None:
        most = min(int(found["most"] or MAX_WHITE_SPACE), MAX_WHITE_SPACE)
    if not most:
        return COMPACT
    return {**COMPACT, "whitespace_pattern": f"[{inner}]{{1,{most}}}"}


def closed_schema(schema: Any) -> Any:
    """A schema in which objects of known properties have no others."""
    if isinstance(schema, list):
        return [closed_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED_SCHEMAS and isinstance(value, dict):
            closed[key] = {name: closed_schema(inner) for name, inner in value.items()}
        else:
            closed[key] = value if key in _VALUES else closed_schema(value)
    if isinstance(schema.get("properties"), dict):
        closed.setdefault("additionalProperties", False)
    return closed


def json_text(value: object, param: str) -> str:
    """A value as JSON. RequestError where it cannot be written."""
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, RecursionError, TypeError, ValueError) as error:
        raise _invalid(param, f"cannot be written as JSON: {error}") from None


def _invalid(param: str, why: str) -> RequestError:
    return RequestError(f"{param} {why}", param=param, code=INVALID_VALUE)
