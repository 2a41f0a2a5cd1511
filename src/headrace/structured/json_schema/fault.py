"""Where in a schema llguidance finds what it cannot hold an answer to; it does not say it itself.

Every place of the keyword at fault is compiled alone, the innermost first, until one is refused for
the same reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from headrace.structured.json_schema.costs import Pointer, reference_to, target_of
from headrace.structured.json_schema.keywords import HOLDING, VALUES, schemas_in

MOST_TRIED = 40
"""Places that are compiled to find one; compiling each has the limits of every grammar."""

_KEYWORDS = (
    ("oneOf constraints", ("oneOf",)),
    ("min/maxProperties", ("maxProperties", "minProperties")),
    ("are not disjoint", ("patternProperties",)),
    ("circular references with sibling keys", ("$ref",)),
    ("intersection stack level exceeded", ("allOf", "$ref")),
)
"""A part of llguidance's reason, and the keywords that it may be about."""

_UNHELD = frozenset(keyword for _, keywords in _KEYWORDS for keyword in keywords) - {"$ref"}

_UNSATISFIABLE = "Unsatisfiable schema: "
"""How llguidance begins where no value satisfies a schema."""

_OF_WHOLES = ("$id", "id", "$schema", "x-guidance")
"""Of a whole schema, and of none within."""

_MOST_SHOWN = 200
"""Characters of a reason, which may repeat an expression."""

_REQUIRED = re.compile(r"required property '(?P<name>.*)' is unsatisfiable", re.DOTALL)

_BLAMED = (
    "exclusiveMinimum", "exclusiveMaximum", "minimum", "maximum", "minLength", "maxLength",
    "minItems", "maxItems", "minProperties", "maxProperties", "multipleOf", "anyOf", "oneOf",
    "enum", "const", "pattern", "prefixItems", "items", "required", "allOf", "type",
)  # fmt: skip
"""Keywords that no value may satisfy, those first that say most."""


def place_of(
    schema: dict[str, Any], reason: str, refusal_of: Callable[[dict[str, Any]], str]
) -> tuple[Pointer, str] | None:
    """The schema within that is refused for a reason, and its keyword; None if it is not found.

    refusal_of: compiles a schema and gives the reason it is refused, "" if it is not.
    """
    found = next((pair for pair in _KEYWORDS if pair[0] in reason), None)
    if found is None:
        return None
    part, keywords = found
    places = [
        (pointer, keyword)
        for pointer, inner in schemas_of(schema)
        for keyword in keywords
        if keyword in inner and (keyword != "$ref" or _has_siblings(inner))
    ]
    options: dict[str, Any] = {
        name: schema[name] for name in ("$schema", "x-guidance") if name in schema
    }
    whole = moved(schema)
    for pointer, keyword in sorted(places, key=lambda place: -len(place[0]))[:MOST_TRIED]:
        alone = {
            "$ref": reference_to(("$defs", "whole", *pointer)),
            "$defs": {"whole": whole},
            **options,
        }
        if part in refusal_of(alone):
            return pointer, keyword
    return None


def unsatisfiable_place(
    schema: dict[str, Any], reason: str, refusal_of: Callable[[dict[str, Any]], str]
) -> tuple[Pointer, str, str] | None:
    """The schema within that no value satisfies, its keyword and why; None if it is not found.

    A required property is followed to what is wrong with its own schema, through references.
    """
    if not reason.startswith(_UNSATISFIABLE):
        return None
    options: dict[str, Any] = {
        name: schema[name] for name in ("$schema", "x-guidance") if name in schema
    }
    whole = moved(schema)

    def at(place: Pointer) -> dict[str, Any]:
        reference = reference_to(("$defs", "whole", *place))
        return {"$ref": reference, "$defs": {"whole": whole}, **options}

    pointer: Pointer = ()
    inner: Any = schema
    for _ in range(MOST_TRIED):
        why = reason.splitlines()[0].removeprefix(_UNSATISFIABLE)[:_MOST_SHOWN]
        step, keyword = _next_step(inner, why)
        if step:
            followed = target_of(inner["$ref"]) if step == ("$ref",) else (*pointer, *step)
            found, refusal = _at(schema, followed), refusal_of(at(followed))
            if isinstance(found, dict) and refusal.startswith(_UNSATISFIABLE):
                pointer, inner, reason = followed, found, refusal
                continue
        named = why.split(" ", 1)[0]
        if named in _BLAMED and named not in inner:
            # Behind a reference the reason is given as if it were of the place that refers.
            places = (place for place, each in schemas_of(schema) if named in each)
            found_at = next(
                (place for place in islice(places, MOST_TRIED) if why in refusal_of(at(place))),
                None,
            )
            if found_at is not None:
                return found_at, named, why
        return None if keyword is None else (pointer, keyword, why)
    return None


def _next_step(schema: dict[str, Any], why: str) -> tuple[Pointer, str | None]:
    """Where in a schema to look for the reason that no value satisfies it, () if it is at fault
    itself, and its keyword that the reason is about."""
    keyword = next((name for name in _BLAMED if name in schema and name in why), None)
    if keyword is None:
        keyword = next((name for name in _BLAMED if name in schema), None)
    required = _REQUIRED.search(why)
    if required is not None and "required" in schema:
        names = schema.get("properties")
        if isinstance(names, dict) and isinstance(names.get(required["name"]), dict):
            return ("properties", required["name"]), "required"
        return (), "required"
    if isinstance(schema.get("$ref"), str):
        return ("$ref",), "$ref"
    return (), keyword


def _at(schema: Any, pointer: Pointer) -> Any:
    for step in pointer:
        if isinstance(schema, list):
            schema = schema[int(step)] if step.isdigit() and int(step) < len(schema) else None
        else:
            schema = schema.get(step) if isinstance(schema, dict) else None
    return schema


def schemas_of(schema: dict[str, Any]) -> Iterator[tuple[Pointer, dict[str, Any]]]:
    """Every schema within one that was walked, itself first."""
    pending: list[tuple[Pointer, dict[str, Any]]] = [((), schema)]
    while pending:
        pointer, outer = pending.pop()
        yield pointer, outer
        for steps, holder, key in schemas_in(outer):
            if isinstance(holder[key], dict):
                pending.append(((*pointer, *steps), holder[key]))


def keywords_of(reason: str) -> tuple[str, ...]:
    """Which keywords llguidance cannot hold an answer to where it gives a reason; none where the
    reason is another."""
    return next((keywords for part, keywords in _KEYWORDS if part in reason), ())


def may_be_unheld(schema: Mapping[str, Any]) -> bool:
    """Whether a schema, walked or not, has keywords of which only compiling shows whether an answer
    can be held to them. More are said to than do: names of properties are not told apart."""
    pending: list[Any] = [schema]
    while pending:
        value = pending.pop()
        if isinstance(value, Mapping):
            if not _UNHELD.isdisjoint(value) or _has_siblings(value):
                return True
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return False


def _has_siblings(schema: Mapping[str, Any]) -> bool:
    """Whether a reference has keywords beside it that change which values are valid."""
    return "$ref" in schema and ("const" in schema or len(schema.keys() & VALUES.keys()) > 1)


def moved(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema for "#/$defs/whole", where its references lead to the same places within it."""
    copy = {name: value for name, value in schema.items() if name not in _OF_WHOLES}
    for keyword in HOLDING:
        if isinstance(value := copy.get(keyword), (dict, list)):
            copy[keyword] = value.copy()
    for _, holder, key in schemas_in(copy):
        if isinstance(holder[key], dict):
            holder[key] = moved(holder[key])
    if isinstance(reference := copy.get("$ref"), str) and reference.startswith("#"):
        copy["$ref"] = f"#/$defs/whole{reference[1:]}"
    return copy
