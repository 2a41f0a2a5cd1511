"""What llguidance compiles of a schema without a bound of its own, and where it is too much.

Multiples: a state for each remainder of all that may have to hold at once. Patterns: whether texts
of all that have to hold at once exist is looked for in time that doubles with each of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

Pointer = tuple[str, ...]

_IN_FRAGMENT = "!$&'()*+,;=:@/?"
"""Beside letters, digits and -._~, what the fragment of a URI may have as it is (RFC 3986)."""

MAX_MULTIPLE = 10_000
"""Of what multiples come to, in units of their last digit and without zeros at the end; 0.1 s."""

MAX_PATTERNS = 6
"""Expressions and formats that a text has to match at once; 12 take 1.5 s, 15 more than 15 s."""

_BLAMED = ("allOf", "$ref", "anyOf", "oneOf", "pattern", "format")
_COMBINING = frozenset({"$ref", "allOf", "anyOf", "oneOf"})


class Excess(NamedTuple):
    """A place where a schema is too much to compile."""

    pointer: Pointer
    keyword: str
    why: str


def excess_of(schemas: Mapping[Pointer, Mapping[str, Any]]) -> Excess | None:
    """The first place of a schema that would take too long; None where there is none.

    schemas: every schema within one, by where it is; a reference is to one of them.
    """
    return _multiples(schemas) or _patterns(schemas)


def _multiples(schemas: Mapping[Pointer, Mapping[str, Any]]) -> Excess | None:
    """Where schemas are combined, any two multiples may have to hold at once."""
    combined = any(not _COMBINING.isdisjoint(schema) for schema in schemas.values())
    together: list[Decimal] = []
    for pointer, schema in schemas.items():
        multiple = schema.get("multipleOf")
        if not isinstance(multiple, (int, float)) or multiple is True or multiple <= 0:
            continue
        together = [*(together if combined else ()), Decimal(repr(multiple))]
        least = min(0, *(_exponent(each) for each in together))
        units = math.lcm(*(int(each.scaleb(-least)) for each in together))
        together = [Decimal(units).scaleb(least)]
        while units % 10 == 0:
            units //= 10
        if units > MAX_MULTIPLE:
            why = f"has more than {MAX_MULTIPLE} remainders, with what may have to hold beside it"
            return Excess(pointer, "multipleOf", why)
    return None


def _exponent(number: Decimal) -> int:
    return int(number.normalize().as_tuple().exponent)


def _patterns(schemas: Mapping[Pointer, Mapping[str, Any]]) -> Excess | None:
    """A schema's own, those of all it refers to or combines, and the most of any alternative."""
    counts: dict[Pointer, int] = {}
    for root in schemas:
        pending = [root]
        begun: set[Pointer] = set()
        while pending:
            pointer = pending[-1]
            if pointer in counts:
                pending.pop()
                continue
            schema = schemas[pointer]
            inner = list(_beside(pointer, schema, schemas))
            if pointer not in begun:
                begun.add(pointer)
                pending += [each for _, each in inner if each not in counts and each not in begun]
                continue
            pending.pop()
            count = ("pattern" in schema) + ("format" in schema)
            count += sum(counts.get(each, 0) for keyword, each in inner if keyword == "all")
            for alternatives in ("anyOf", "oneOf"):
                count += max(
                    (counts.get(at, 0) for of, at in inner if of == alternatives), default=0
                )
            counts[pointer] = count
            if count > MAX_PATTERNS:
                keyword = next(name for name in _BLAMED if name in schema)
                why = f"combines more than {MAX_PATTERNS} expressions and formats for one text"
                return Excess(pointer, keyword, why)
    return None


def _beside(
    pointer: Pointer, schema: Mapping[str, Any], schemas: Mapping[Pointer, Mapping[str, Any]]
) -> Iterator[tuple[str, Pointer]]:
    """Schemas that hold for the same value, and how: "all", or an alternative of a keyword."""
    reference = schema.get("$ref")
    if isinstance(reference, str) and (target := target_of(reference)) in schemas:
        yield "all", target
    for keyword in ("allOf", "anyOf", "oneOf"):
        ways = schema.get(keyword)
        for index in range(len(ways) if isinstance(ways, list) else 0):
            at = (*pointer, keyword, str(index))
            if at in schemas:
                yield ("all" if keyword == "allOf" else keyword), at


def target_of(reference: str) -> Pointer:
    """The place that a reference within a schema (#/...) names."""
    steps = unquote(reference[1:]).split("/")[1:]
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in steps)


def reference_to(pointer: Pointer) -> str:
    """The reference within a schema that names a place, as a URI writes it."""
    escaped = (step.replace("~", "~0").replace("/", "~1") for step in pointer)
    text = "".join(f"/{step}" for step in escaped)
    # Half of a surrogate pair is refused where the schema is written as JSON.
    return "#" + quote(text, safe=_IN_FRAGMENT, errors="replace")
