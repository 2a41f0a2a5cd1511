"""From rows as files have them to typed rows, fact by fact; errors say where and what to do."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from headrace.catalog.fact import Confidence, Fact, Value
from headrace.catalog.files import Written, as_date
from headrace.catalog.names import hint
from headrace.catalog.rows import KINDS, Row
from headrace.catalog.schema import DEFAULT_KEYS, FACT_KEYS, ROW_KEYS, Field, fields_of
from headrace.catalog.span import Span, parse_span
from headrace.catalog.units import SPELLINGS, known_unit, parse_quantity
from headrace.errors import CatalogError, shown


def build_row(
    layers: Iterable[Written], sources: Iterable[str], contradictions: Iterable[str]
) -> Row:
    """One row from what files say of it, the later of which override the earlier field by field.

    sources, contradictions: the ids there are. Raises CatalogError.
    """
    known, disputes = set(sources), set(contradictions)
    facts: dict[str, Fact] = {}
    named: dict[str, Any] = {}
    last = None
    for written in layers:
        facts |= _facts(written, known, disputes)
        named |= {key: written.table[key] for key in ROW_KEYS if key in written.table}
        last = written
    assert last is not None, "a row is written somewhere"
    for name, field in fields_of(last.kind).items():
        if field.required and name not in facts:
            raise CatalogError(f"{last.where}: has no {name}, which every {last.kind} needs")
    if "name" not in named:
        raise CatalogError(f"{last.where}: has no name; give it the name people know")
    aliases = named.get("aliases", [])
    if not isinstance(named["name"], str) or not _texts(aliases):
        raise CatalogError(f"{last.where}: name is a string, aliases a list of strings")
    return KINDS[last.kind](
        id=last.id,
        name=named["name"],
        aliases=tuple(aliases),
        facts=MappingProxyType(facts),
        **_values(last.kind, facts),
    )


def _values(kind: str, facts: Mapping[str, Fact]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for path, fact in facts.items():
        name, _, key = path.partition(".")
        if fields_of(kind)[name].keyed:
            values.setdefault(name, {})[key] = fact.value
        else:
            values[name] = fact.value
    return values


def _facts(written: Written, sources: set[str], disputes: set[str]) -> dict[str, Fact]:
    """The facts of one row in one file, by path."""
    facts: dict[str, Fact] = {}
    fields = fields_of(written.kind)
    for key, value in written.table.items():
        if key in ROW_KEYS | DEFAULT_KEYS:
            continue
        field = fields.get(key)
        if field is None:
            names = [*fields, *ROW_KEYS, *DEFAULT_KEYS]
            quoted = "; an id with a dot is written in quotes" if isinstance(value, dict) else ""
            raise CatalogError(f"{written.where}: unknown key {key!r}; {hint(key, names)}{quoted}")
        for path, entry in _entries(written, field, value):
            facts[path] = _fact(written, field, path, entry, sources, disputes)
    return facts


def _entries(written: Written, field: Field, value: object) -> Iterator[tuple[str, object]]:
    if not field.keyed:
        yield field.name, value
        return
    if not isinstance(value, dict):
        raise CatalogError(
            f"{written.where}, {field.name}: {shown(value)}: it holds several values by name; "
            f"write {field.name}.NAME = …"
        )
    for key, entry in value.items():
        yield f"{field.name}.{key}", entry


def _fact(
    written: Written,
    field: Field,
    path: str,
    entry: object,
    sources: set[str],
    disputes: set[str],
) -> Fact:
    where = f"{written.where}, {path}"
    table: dict[str, Any] = entry if isinstance(entry, dict) else {"value": entry}
    for key in table:
        if key not in FACT_KEYS:
            raise CatalogError(f"{where}: unknown key {key!r}; {hint(key, FACT_KEYS)}")
    if "value" not in table:
        raise CatalogError(f"{where}: has no value; write value = … in the table")
    given = {**written.defaults, **{k: v for k, v in written.table.items() if k in DEFAULT_KEYS}}
    given |= table
    unit = _unit(where, field, table)
    disputed = table.get("disputed_by", [])
    if not _texts(disputed):
        raise CatalogError(f"{where}: disputed_by: {shown(disputed)}: write a list of ids")
    for contradiction in disputed:
        if contradiction not in disputes:
            raise CatalogError(
                f"{where}: disputed_by: no contradiction {contradiction!r}; "
                f"{hint(contradiction, sorted(disputes))}"
            )
    return Fact(
        value=_value(where, field, table["value"], unit),
        unit=unit,
        source=_source(where, given, sources),
        as_of=_as_of(where, given),
        confidence=_confidence(where, given),
        disputed_by=tuple(disputed),
        note=_note(where, table),
        origin=written.origin,
    )


def _unit(where: str, field: Field, table: Mapping[str, Any]) -> str:
    unit = table.get("unit", field.unit)
    if unit is None:
        raise CatalogError(f'{where}: has no unit; give it one, e.g. unit = "x" for a factor')
    if not isinstance(unit, str) or known_unit(unit) is None:
        every = [name for spellings in SPELLINGS.values() for name in spellings if name]
        raise CatalogError(f"{where}: unknown unit {shown(unit)}; {hint(str(unit), every)}")
    if field.unit is not None and unit != field.unit:
        raise CatalogError(
            f"{where}: unit {unit!r}: the field is in {field.unit or 'no unit'}; omit it and write "
            "the unit in the value"
        )
    return unit


def _source(where: str, given: Mapping[str, Any], sources: set[str]) -> str:
    source = given.get("source")
    if not isinstance(source, str):
        raise CatalogError(
            f"{where}: has no source; name one here, in the row or in [defaults], and describe it "
            "in a [[source]] table"
        )
    if source not in sources:
        raise CatalogError(
            f"{where}: no source {source!r}; {hint(source, sorted(sources))}; "
            "a new one is described in a [[source]] table"
        )
    return source


def _as_of(where: str, given: Mapping[str, Any]) -> dt.date:
    if "as_of" not in given:
        raise CatalogError(
            f"{where}: has no as_of; write the day it is true of, as_of = 2026-03-01"
        )
    try:
        return as_date(given["as_of"])
    except ValueError as error:
        raise CatalogError(
            f"{where}: as_of {shown(given['as_of'])}: {error}; write it as 2026-03-01"
        ) from error


def _confidence(where: str, given: Mapping[str, Any]) -> Confidence:
    confidence = given.get("confidence")
    names = [known.value for known in Confidence]
    if confidence not in names:
        raise CatalogError(
            f"{where}: confidence {shown(confidence)}: write one of {', '.join(names)}"
        )
    return Confidence(confidence)


def _note(where: str, table: Mapping[str, Any]) -> str:
    note = table.get("note", "")
    if not isinstance(note, str):
        raise CatalogError(f"{where}: note {shown(note)}: write a string")
    return note


def _value(where: str, field: Field, given: object, unit: str) -> Value:
    """What the file gives, as the type of the field; quantities in its unit."""
    try:
        if field.span:
            return _span(field, given)
        plain = given
        if isinstance(given, str) and field.unit:
            number = parse_quantity(given, field.unit)
            plain = round(number) if field.whole else number
        elif isinstance(given, dt.date):
            plain = as_date(given).isoformat()
        if field.choices and plain not in field.choices:
            raise ValueError(f"write one of {', '.join(field.choices)}")
        value: Value = msgspec.convert(plain, field.type)
    except ValueError as error:  # msgspec's ValidationError is one
        raise CatalogError(f"{where}: {shown(given)}: {error} (unit: {unit or 'none'})") from error
    if isinstance(value, float) and not math.isfinite(value):
        raise CatalogError(f"{where}: {value}: write a finite number")
    return value


def _span(field: Field, given: object) -> Span:
    if isinstance(given, str) and field.unit:
        try:
            number = parse_quantity(given, field.unit)
        except ValueError:
            return parse_span(given)
        return Span(number, number)
    if isinstance(given, list) and field.unit and all(isinstance(part, str) for part in given):
        return parse_span([parse_quantity(part, field.unit) for part in given])
    return parse_span(given)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)
