"""What each kind of row may hold, read from the declarations in `rows/`."""

from __future__ import annotations

import types
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from headrace.catalog.rows import KINDS, Row
from headrace.catalog.span import Span

# Of a row itself; they are not facts.
ROW_KEYS = frozenset({"id", "name", "aliases"})
# Of all facts of a row, where they do not say it themselves.
DEFAULT_KEYS = frozenset({"source", "as_of", "confidence"})
FACT_KEYS = frozenset({"value", "unit", "disputed_by", "note"}) | DEFAULT_KEYS


class Field(NamedTuple):
    """A field of a kind of row."""

    name: str
    type: Any
    """Of a value, as msgspec converts to it."""
    unit: str | None
    """None where each fact states its own; "" for a number without unit."""
    keyed: bool
    """Whether the field holds several values by name."""
    span: bool
    """Whether values are Spans."""
    whole: bool
    """Whether a number is counted, so that 130.6 GiB is rounded."""
    choices: tuple[str, ...]
    """The words it may be; none where it is free."""
    required: bool
    """Whether a row must have it."""


@cache
def fields_of(kind: str) -> dict[str, Field]:
    """The fields of a kind of row that facts are behind, by name, in their order."""
    row = KINDS[kind]
    hints = get_type_hints(row, include_extras=True)
    of_rows = set(Row.__struct_fields__)
    return {
        field.name: _field(field, hints[field.name])
        for field in msgspec.structs.fields(row)
        if field.name not in of_rows
    }


def _field(field: msgspec.structs.FieldInfo, hint: Any) -> Field:
    inner = _without_none(hint)
    keyed = get_origin(inner) is dict
    if keyed:
        inner = get_args(inner)[1]
    unit: str | None = ""
    plain = inner
    if get_origin(inner) is Annotated:
        plain, *metas = get_args(inner)
        for meta in metas:
            if isinstance(meta, msgspec.Meta) and meta.extra is not None:
                unit = meta.extra["unit"]
    choices = tuple(get_args(plain)) if get_origin(plain) is Literal else ()
    return Field(
        field.name, inner, unit, keyed, plain is Span, plain is int, choices, field.required
    )


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        [inner] = [part for part in get_args(hint) if part is not type(None)]
        return inner
    return hint
