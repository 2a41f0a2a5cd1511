"""Bounds of numbers where a schema states none, so that no answer can be digits for ever.

The result is as strict as the schema or stricter. A bounded number has no exponent, so that none is
beyond a double either. Strings have no default bound: counting the characters of a long text takes
a state of the lexer for each, and ten times as long for a mask; `max_tokens` ends them.
"""

from __future__ import annotations

import math
from typing import Any

MOST = 2**63 - 1024
"""The magnitude of numbers: what a signed integer of 64 bits and a double both hold."""

ANY = "headrace-any"
"""The name in `$defs` of the schema that everything without one has."""

_NAMED = ("properties", "patternProperties", "$defs", "definitions")
_MANY = ("anyOf", "oneOf", "prefixItems")
_ANNOTATIONS = frozenset(
    {"$comment", "default", "deprecated", "description", "examples", "readOnly", "title",
     "writeOnly"}
)  # fmt: skip
_TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]
_BOUNDS = (("minimum", "exclusiveMinimum", -MOST), ("maximum", "exclusiveMaximum", MOST))


def bounded(schema: dict[str, Any]) -> dict[str, Any]:
    """A walked schema with bounds of its numbers. Schemas that are intersected (`allOf`, and what
    stands beside a `$ref`) stay as they are: a bound of one would be one of the other."""
    bounds = _Bounds()
    empty = not schema.keys() - _ANNOTATIONS - {"$schema", "$id"}
    root: dict[str, Any] = bounds.value(True) if empty else bounds.of(schema)
    if bounds.has_any:
        reference = {"$ref": f"#/$defs/{ANY}"}
        anything: dict[str, Any] = {"type": _TYPES, "minimum": -MOST, "maximum": MOST}
        anything |= {"items": reference, "additionalProperties": reference}
        root["$defs"] = {**root.get("$defs", {}), ANY: anything}
    return root


def bring_within_reach(schema: dict[str, Any]) -> str | None:
    """Bounds that are beyond all numbers of answers become those of all numbers, which llguidance
    can write out; the keyword that leaves none of these numbers, if there is one."""
    names = _listed(schema.get("type", "number"))
    if schema.keys() & {"enum", "const"} or not ("integer" in names or "number" in names):
        return None
    for including, excluding, most in _BOUNDS:
        sign = 1 if most > 0 else -1
        for name in (including, excluding):
            bound = schema.get(name)
            if not isinstance(bound, (int, float)) or isinstance(bound, bool):
                continue
            if isinstance(bound, int) or math.isfinite(bound):
                if sign * bound < -MOST:
                    return name
                if sign * bound > MOST:
                    del schema[name]
                    if schema.get(excluding) is True:  # of draft 4, and of what stood here
                        del schema[excluding]
                    schema.setdefault(including, most)
    return None


def _listed(types: object) -> list[str]:
    return [types] if isinstance(types, str) else types if isinstance(types, list) else []


class _Bounds:
    """One schema while it is rewritten."""

    def __init__(self) -> None:
        self.has_any = False

    def of(self, schema: Any) -> Any:
        """A schema, and those within."""
        if not isinstance(schema, dict):
            return schema
        if "allOf" in schema or ("$ref" in schema and len(schema.keys() - _ANNOTATIONS) > 1):
            return schema
        result = dict(schema)
        for keyword in _NAMED:
            if isinstance(schema.get(keyword), dict):
                result[keyword] = {
                    name: self.value(inner) for name, inner in schema[keyword].items()
                }
        for keyword in _MANY:
            if isinstance(schema.get(keyword), list):
                result[keyword] = [self.of(inner) for inner in schema[keyword]]
        for keyword in ("items", "additionalProperties"):
            if isinstance(schema.get(keyword), (dict, bool)):
                result[keyword] = self.value(schema[keyword])
        if not schema.keys() & {"enum", "const", "$ref", *_MANY[:2]}:
            self._bound(result)
        return result

    def value(self, schema: Any) -> Any:
        """As `of`; a schema that allows everything becomes the one with a name."""
        if schema is True or (isinstance(schema, dict) and not schema.keys() - _ANNOTATIONS):
            self.has_any = True
            return {"$ref": f"#/$defs/{ANY}"}
        return self.of(schema)

    def _bound(self, schema: dict[str, Any]) -> None:
        """Write out what a schema with types leaves open."""
        names = _listed(schema.get("type"))
        if "number" in names or "integer" in names:
            missing = [
                (keyword, most)
                for keyword, exclusive, most in _BOUNDS
                if not schema.keys() & {keyword, exclusive} and _has_room(schema)
            ]
            schema.update(missing)
        if "array" in names and not schema.keys() & {"items", "prefixItems", "additionalItems"}:
            schema["items"] = self.value(True)
        if "object" in names and not schema.keys() & {"additionalProperties", "patternProperties"}:
            schema["additionalProperties"] = self.value(True)


def _has_room(schema: dict[str, Any]) -> bool:
    """Whether a bound that a schema states, if it does, is well within ours or ours itself."""
    stated = ((schema.get(name), most) for *names, most in _BOUNDS for name in names)
    return all(
        not isinstance(each, (int, float)) or abs(each) < MOST / 2 or each == most
        for each, most in stated
    )
