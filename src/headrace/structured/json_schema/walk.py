"""A JSON schema that an answer can be held to exactly, or an error that says where it cannot be.

The dialect is draft 2020-12. Every place of the schema is visited, in bounded depth and number,
and a keyword that llguidance would not enforce is refused with its JSON pointer. A keyword that
JSON Schema does not know is an annotation, as JSON Schema says. What llguidance enforces only in
part (dates, names of hosts, some characters in expressions) is written out here in full, so that
no answer passes which the schema forbids.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from headrace.errors import RequestError, shown
from headrace.structured.forced_text import MAX_FORCED_BYTES
from headrace.structured.json_schema.costs import Pointer, excess_of, target_of
from headrace.structured.json_schema.intervals import exclude_bounds
from headrace.structured.json_schema.patterns import PatternError, rewritten, unwritten
from headrace.structured.json_schema.runs import too_long

UNSUPPORTED_SCHEMA = "unsupported_schema"
INVALID_SCHEMA = "invalid_schema"
SCHEMA_TOO_LARGE = "schema_too_large"

MAX_DEPTH = 64
"""Of schemas within schemas."""
MAX_SCHEMAS = 20_000
"""Of all schemas within one."""

UNSUPPORTED = frozenset(
    {
        "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef",
        "contains", "dependencies", "dependentRequired", "dependentSchemas", "else", "if",
        "maxContains", "minContains", "not", "propertyNames", "then", "unevaluatedItems",
        "unevaluatedProperties", "uniqueItems",
    }
)  # fmt: skip
"""Keywords that change which values are valid, and that no grammar here enforces."""

FORMATS = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"}
)
"""Formats that are enforced; any other is refused."""

TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")

_DIALECTS = re.compile(r"https?://json-schema\.org/(draft-0[467]|draft/20(19-09|20-12))/schema#?\Z")

_ONE = ("items", "additionalItems", "additionalProperties")
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties", "$defs", "definitions")
_HARMLESS: dict[str, tuple[object, ...]] = {
    "uniqueItems": (False,),
    "unevaluatedItems": (True,),
    "unevaluatedProperties": (True,),
    "propertyNames": (True,),
    "dependencies": ({},),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
}
"""Values with which a keyword of UNSUPPORTED forbids nothing; the keyword is then omitted."""

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

_NUMBERS = (
    "const", "enum", "exclusiveMaximum", "exclusiveMinimum", "maxItems", "maxLength",
    "maxProperties", "maximum", "minItems", "minLength", "minProperties", "minimum", "multipleOf",
)  # fmt: skip
"""Keywords with numbers that change which values are valid."""


def check_schema(schema: object, param: str) -> dict[str, Any]:
    """The schema as it is to be compiled; equal in meaning to the one given, or stricter.

    Raises RequestError, which names the keyword at fault and its JSON pointer: code
    "unsupported_schema", "invalid_schema" where it is not a schema, "schema_too_large".
    """
    if schema is True:
        return {}
    if not isinstance(schema, dict):
        raise RequestError(
            f"{param}: {shown(schema)} is not a schema; a schema is an object",
            param=param,
            code=INVALID_SCHEMA,
        )
    return _Walk(param).whole(schema)


def pointer_text(pointer: Pointer) -> str:
    """A JSON pointer as RFC 6901 writes it; "#" for the whole."""
    return "#" + "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in pointer)


def stricter_than(form: object) -> dict[str, Any] | None:
    """What the walk says beside a format; None where nothing is to be said."""
    if not isinstance(form, str) or form not in _STRICTER:
        return None
    stricter: dict[str, Any] = {"pattern": rewritten(_STRICTER[form])}
    if form == "hostname":
        stricter["maxLength"] = _MAX_HOSTNAME
    return stricter


def _is_double(number: int | float) -> bool:
    try:
        return math.isfinite(number) and float(number) == number
    except OverflowError:
        return False


_NOT_UNIQUE = (
    "is not supported, since items are not compared: bound the list by maxItems, and look for "
    "equal items in the answer"
)


class _Walk:
    """The state of one walk: what was seen, and what was referred to."""

    def __init__(self, param: str) -> None:
        self.param = param
        self.seen: dict[Pointer, dict[str, Any]] = {}
        self.references: list[tuple[Pointer, Pointer]] = []

    def whole(self, schema: dict[str, Any]) -> dict[str, Any]:
        dialect = schema.get("$schema")
        if dialect is not None and not (isinstance(dialect, str) and _DIALECTS.match(dialect)):
            raise self.refuse((), "$schema", "is not one of JSON Schema's own, draft 4 to 2020-12")
        # Parents come before what is within them, and copies are filled as they are visited.
        root = dict(schema)
        pending: list[tuple[Pointer, dict[str, Any]]] = [((), root)]
        while pending:
            pointer, copy = pending.pop()
            self.seen[pointer] = copy
            if len(self.seen) > MAX_SCHEMAS:
                raise self.too_large(f"has more than {MAX_SCHEMAS} schemas in it")
            self._check_keywords(pointer, copy)
            for at, holder, key in self._inner(pointer, copy):
                inner = holder[key]
                if isinstance(inner, bool):
                    self.seen[at] = {}
                    continue
                if not isinstance(inner, dict):
                    raise self.invalid(at, f"{shown(inner)} is not a schema")
                if len(at) > 2 * MAX_DEPTH:
                    raise self.too_large(f"is nested deeper than {MAX_DEPTH} schemas")
                holder[key] = dict(inner)
                pending.append((at, holder[key]))
            self._tighten(pointer, copy)
        self._check_references()
        if (excess := excess_of(self.seen) or exclude_bounds(self.seen)) is not None:
            raise self.refuse(*excess)
        if (forced := too_long(self.seen)) is not None:
            place = pointer_text((*forced.pointer, forced.keyword))
            raise RequestError(
                f"{self.param}: {shown(forced.keyword)} at {place} leaves no choice about "
                f"{forced.num_bytes} bytes of an answer; at most {MAX_FORCED_BYTES} are accepted "
                "at one place. Shorten the text, or allow any string there and insert it yourself.",
                param=self.param,
                code=SCHEMA_TOO_LARGE,
            )
        return root

    def refuse(self, pointer: Pointer, keyword: str, why: str) -> RequestError:
        return RequestError(
            f"{self.param}: the keyword {shown(keyword)} at "
            f"{pointer_text((*pointer, keyword))} {why}; omit it, or write the schema without it",
            param=self.param,
            code=UNSUPPORTED_SCHEMA,
        )

    def invalid(self, pointer: Pointer, why: str) -> RequestError:
        return RequestError(
            f"{self.param}: {why}, at {pointer_text(pointer)}",
            param=self.param,
            code=INVALID_SCHEMA,
        )

    def too_large(self, why: str) -> RequestError:
        return RequestError(
            f"{self.param}: the schema {why}; make it smaller",
            param=self.param,
            code=SCHEMA_TOO_LARGE,
        )

    def _check_keywords(self, pointer: Pointer, schema: dict[str, Any]) -> None:
        for keyword, harmless in _HARMLESS.items():
            if keyword in schema and any(
                schema[keyword] is value or (value == {} and schema[keyword] == {})
                for value in harmless
            ):
                del schema[keyword]
        for keyword in schema:
            if keyword == "uniqueItems":
                raise self.refuse(pointer, keyword, _NOT_UNIQUE)
            if keyword in UNSUPPORTED:
                raise self.refuse(pointer, keyword, "is not supported")
        if pointer:
            for keyword in ("$id", "id", "$schema"):
                if isinstance(schema.get(keyword), str):
                    raise self.refuse(pointer, keyword, "is supported at the top only")
        self._check_texts(pointer, schema)
        self._check_numbers(pointer, schema)
        self._check_values(pointer, schema)
        self._check_format(pointer, schema)
        self._check_sizes(pointer, schema)
        reference = schema.get("$ref")
        if "$ref" in schema:
            if not isinstance(reference, str):
                raise self.invalid((*pointer, "$ref"), f"{shown(reference)} is not a reference")
            if reference != "#" and not reference.startswith("#/"):
                raise self.refuse(pointer, "$ref", "is not a place within this schema (#/...)")
            self.references.append(((*pointer, "$ref"), target_of(reference)))

    def _check_values(self, pointer: Pointer, schema: dict[str, Any]) -> None:
        """What the meta-schema says of `type` and `multipleOf`."""
        types = schema.get("type", ())
        for name in types if isinstance(types, (list, tuple)) else [types]:
            if name not in TYPES:
                raise self.invalid(
                    (*pointer, "type"),
                    f"'type' has {shown(name)}; the types are {', '.join(TYPES)}",
                )
        factor = schema.get("multipleOf", 1)
        if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not factor > 0:
            raise self.invalid(
                (*pointer, "multipleOf"),
                f"'multipleOf' is {shown(factor)}; it must be a number above 0",
            )

    def _check_format(self, pointer: Pointer, schema: dict[str, Any]) -> None:
        form = schema.get("format")
        if "format" in schema and (not isinstance(form, str) or form not in FORMATS):
            raise self.refuse(
                pointer, "format", f"is {shown(form)}; supported are {', '.join(sorted(FORMATS))}"
            )

    def _check_texts(self, pointer: Pointer, schema: dict[str, Any]) -> None:
        """Texts that an answer would have to repeat have no character that it cannot write."""
        for keyword in ("const", "enum", "properties", "required"):
            value = schema.get(keyword)
            pending = (
                list(value) if keyword == "properties" and isinstance(value, dict) else [value]
            )
            while pending:
                part = pending.pop()
                if isinstance(part, dict):
                    pending.extend((*part, *part.values()))
                elif isinstance(part, list):
                    pending.extend(part)
                elif isinstance(part, str) and unwritten(part):
                    raise self.refuse(pointer, keyword, f"has a control character in {shown(part)}")

    def _check_numbers(self, pointer: Pointer, schema: dict[str, Any]) -> None:
        """Numbers are read as doubles where an answer is held to them: another is not the same."""
        for keyword in _NUMBERS:
            pending = [schema.get(keyword)]
            while pending:
                part = pending.pop()
                if isinstance(part, dict):
                    pending.extend(part.values())
                elif isinstance(part, list):
                    pending.extend(part)
                elif isinstance(part, (int, float)) and not _is_double(part):
                    raise self.refuse(pointer, keyword, "has a number that no double is equal to")

    def _check_sizes(self, pointer: Pointer, schema: dict[str, Any]) -> None:
        """Names outside `properties` may be repeated, so that they cannot be counted."""
        least = schema.get("minProperties", 0)
        required = schema.get("required", ())
        certain = len(set(map(str, required))) if isinstance(required, list) else 0
        if isinstance(least, (int, float)) and least > max(1, certain):
            raise self.refuse(
                pointer,
                "minProperties",
                f"is {shown(least)}, which is supported up to 1 and up to the number of required "
                "properties",
            )

    def _inner(
        self, pointer: Pointer, schema: dict[str, Any]
    ) -> Iterator[tuple[Pointer, Any, Any]]:
        """Every place of a schema within: its pointer, and the copied container and key of it."""
        for keyword in _NAMED:
            value = schema.get(keyword)
            if keyword not in schema:
                continue
            if not isinstance(value, dict):
                raise self.invalid((*pointer, keyword), f"{shown(value)} is not an object")
            copy = dict(value)
            schema[keyword] = copy
            for name in value:
                yield (*pointer, keyword, name), copy, name
        for keyword in _MANY:
            value = schema.get(keyword)
            if isinstance(value, list):
                items = list(value)
                schema[keyword] = items
                for index in range(len(items)):
                    yield (*pointer, keyword, str(index)), items, index
            elif keyword in schema and keyword not in _ONE:
                raise self.invalid((*pointer, keyword), f"{shown(value)} is not a list")
        for keyword in _ONE:
            if keyword in schema and not isinstance(schema[keyword], list):
                yield (*pointer, keyword), schema, keyword

    def _tighten(self, pointer: Pointer, schema: dict[str, Any]) -> None:
        """Write out what llguidance would read in another way."""
        if isinstance(schema.get("pattern"), str):
            schema["pattern"] = self._pattern((*pointer, "pattern"), schema["pattern"])
        if isinstance(schema.get("patternProperties"), dict):
            named = schema["patternProperties"]
            at = (*pointer, "patternProperties")
            schema["patternProperties"] = {
                self._pattern((*at, name), name): named[name] for name in named
            }
            if len(schema["patternProperties"]) != len(named):
                raise self.refuse(pointer, "patternProperties", "has equal expressions")
        stricter = stricter_than(schema.get("format"))
        if stricter is not None:
            parts = schema.get("allOf", [])
            if stricter not in parts:  # of a schema that was walked before
                schema["allOf"] = [*parts, stricter]
                self.seen[(*pointer, "allOf", str(len(parts)))] = stricter

    def _pattern(self, at: Pointer, pattern: str) -> str:
        try:
            return rewritten(pattern)
        except PatternError as error:
            *pointer, keyword = at
            if "patternProperties" in pointer[-1:]:
                pointer, keyword = pointer[:-1], "patternProperties"
            raise self.refuse(
                tuple(pointer), keyword, f"has the expression {shown(pattern)}: {error}"
            ) from None

    def _check_references(self) -> None:
        for place, target in self.references:
            if target not in self.seen:
                raise self.invalid(
                    place, f"{shown(pointer_text(target))} is not the place of a schema here"
                )
