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
from typing import Any

from headrace.errors import RequestError, shown
from headrace.structured.forced_text import MAX_FORCED_BYTES
from headrace.structured.json_schema.bounds import MOST, bring_within_reach
from headrace.structured.json_schema.costs import Pointer, excess_of, reference_to, target_of
from headrace.structured.json_schema.finite import Values
from headrace.structured.json_schema.formats import (
    FORMATS,
    NUMBER_FORMATS,
    settle_format,
    stricter_than,
)
from headrace.structured.json_schema.intervals import exclude_bounds
from headrace.structured.json_schema.keywords import (
    COUNTS,
    MOST_COUNTED,
    VALUES,
    schemas_in,
)
from headrace.structured.json_schema.patterns import (
    MalformedPatternError,
    PatternError,
    rewritten,
    unwritten,
)
from headrace.structured.json_schema.runs import too_long
from headrace.structured.limits import INVALID_GRAMMAR

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

_DIALECTS = re.compile(r"https?://json-schema\.org/(draft-0[467]|draft/20(19-09|20-12))/schema#?\Z")

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

_NUMBERS = (
    "const", "enum", "exclusiveMaximum", "exclusiveMinimum", "maxItems", "maxLength",
    "maxProperties", "maximum", "minItems", "minLength", "minProperties", "minimum", "multipleOf",
)  # fmt: skip
"""Keywords with numbers that change which values are valid."""


def check_schema(schema: object, param: str) -> dict[str, Any]:
    """The schema as it is to be compiled; equal in meaning to the one given, or stricter.

    Raises RequestError, which names the keyword at fault and its JSON pointer: code
    "unsupported_schema", "invalid_schema" where it is not a schema, "schema_too_large",
    "invalid_grammar" where it has no value.
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
        self.never: set[Pointer] = set()
        """Where `false` stands."""
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
            for steps, holder, key in schemas_in(copy):
                at = (*pointer, *steps)
                inner = holder[key]
                if isinstance(inner, bool):
                    self.seen[at] = {}
                    if not inner:
                        self.never.add(at)
                    continue
                if not isinstance(inner, dict):
                    raise self.invalid(at, f"{shown(inner)} is not a schema")
                if len(at) > 2 * MAX_DEPTH:
                    raise self.too_large(f"is nested deeper than {MAX_DEPTH} schemas")
                holder[key] = dict(inner)
                pending.append((at, holder[key]))
            self._tighten(pointer, copy)
        self._check_references()
        self._check_values_exist()
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
        self._rename_patterns()
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
        if (beyond := bring_within_reach(schema)) is not None:
            raise self.refuse(pointer, beyond, f"leaves no number of magnitude up to {MOST}")
        self._check_numbers(pointer, schema)
        self._check_values(pointer, schema)
        if not settle_format(schema):
            raise self.refuse(
                pointer,
                "format",
                f"is {shown(schema['format'])}; supported are {', '.join(sorted(FORMATS))}, and "
                f"of numbers {', '.join(sorted(NUMBER_FORMATS))}",
            )
        self._check_sizes(pointer, schema)
        if "$ref" in schema:
            reference = schema["$ref"]
            if reference != "#" and not reference.startswith("#/"):
                raise self.refuse(pointer, "$ref", "is not a place within this schema (#/...)")
            self.references.append(((*pointer, "$ref"), target_of(reference)))

    def _check_values(self, pointer: Pointer, schema: dict[str, Any]) -> None:
        """Every value is of its keyword's kind, and its containers are copied."""
        for keyword, value in [*schema.items()]:
            if (kind := VALUES.get(keyword)) is None:
                continue
            if not kind.has(value):
                raise self.invalid(
                    (*pointer, keyword),
                    f"{shown(keyword)} is {shown(value)}; it must be {kind.expected}",
                )
            if keyword in COUNTS:
                schema[keyword] = min(int(value), MOST_COUNTED)
            elif kind.holds and not isinstance(value, bool):
                schema[keyword] = value.copy()

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
        if least > max(1, len(set(schema.get("required", ())))):
            raise self.refuse(
                pointer,
                "minProperties",
                f"is {shown(least)}, which is supported up to 1 and up to the number of required "
                "properties",
            )

    def _tighten(self, pointer: Pointer, schema: dict[str, Any]) -> None:
        """Write out what llguidance would read in another way."""
        if "pattern" in schema:
            schema["pattern"] = self._pattern(pointer, "pattern", schema["pattern"])
        named = schema.get("patternProperties", {})
        if len({self._pattern(pointer, "patternProperties", name) for name in named}) < len(named):
            raise self.refuse(pointer, "patternProperties", "has equal expressions")
        stricter = stricter_than(schema.get("format"))
        if stricter is not None:
            parts = schema.get("allOf", [])
            if stricter not in parts:  # of a schema that was walked before
                schema["allOf"] = [*parts, stricter]
                self.seen[(*pointer, "allOf", str(len(parts)))] = stricter

    def _pattern(self, pointer: Pointer, keyword: str, pattern: str) -> str:
        try:
            return rewritten(pattern)
        except MalformedPatternError as error:
            raise self.invalid(
                (*pointer, keyword),
                f"{shown(keyword)} has {shown(pattern)}, which is not an expression: {error}",
            ) from None
        except PatternError as error:
            raise self.refuse(
                pointer, keyword, f"has the expression {shown(pattern)}: {error}"
            ) from None

    def _rename_patterns(self) -> None:
        """The last step: until then a schema is where its pointer says. References follow, written
        as a URI has to be."""
        for schema in self.seen.values():
            if "$ref" in schema:
                schema["$ref"] = reference_to(self._renamed(target_of(schema["$ref"])))
            if "patternProperties" in schema:
                schema["patternProperties"] = {
                    rewritten(name): inner for name, inner in schema["patternProperties"].items()
                }

    def _renamed(self, pointer: Pointer) -> Pointer:
        """Where the schema at a place is once expressions are rewritten."""
        return tuple(
            rewritten(step)
            if pointer[index - 1 : index] == ("patternProperties",)
            and pointer[: index - 1] in self.seen
            else step
            for index, step in enumerate(pointer)
        )

    def _check_values_exist(self) -> None:
        if not self.references:
            return
        values = Values(self.seen, self.never)
        if (found := values.why_none()) is not None:
            lack, endless = found
            why = (
                "each would have to have another within it, without end; make one of them optional"
                if endless
                else "what it asks for has none itself"
            )
            place = pointer_text((*lack.pointer, lack.keyword))
            raise RequestError(
                f"{self.param}: no value satisfies the keyword {shown(lack.keyword)} at "
                f"{place}: {why}",
                param=self.param,
                code=INVALID_GRAMMAR,
            )
        values.drop_empty()

    def _check_references(self) -> None:
        for place, target in self.references:
            if target not in self.seen:
                raise self.invalid(
                    place, f"{shown(pointer_text(target))} is not the place of a schema here"
                )
