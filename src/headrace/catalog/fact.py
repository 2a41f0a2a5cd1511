"""What one fact is, and where facts come from.

A fact never changes; a newer figure is another fact. `confidence` says how it came to be known, not
how likely somebody finds it.
"""

from __future__ import annotations

import datetime as dt
import enum
from typing import TypeAlias

import msgspec

from headrace.catalog.span import Span

Value: TypeAlias = bool | int | float | str | dt.date | Span | tuple[str, ...]


class Confidence(enum.StrEnum):
    """The ways a fact came to be known, from the surest down."""

    EXACT = "exact"  # read from the thing itself: a config.json, a header, a format's definition
    HIGH = "high"  # the maker's data sheet, or two sources that do not copy each other
    MEDIUM = "medium"  # one source that had reason to be right
    LOW = "low"  # general knowledge, nobody looked it up
    CLAIM = "claim"  # published without the conditions it holds under: shown, never computed with


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A document, table or file that facts refer to by `id`."""

    id: str
    title: str
    date: dt.date
    """Of the document, or of the state that was read."""
    url: str = ""
    """Empty where it has none."""
    publisher: str = ""
    note: str = ""


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A value with all that is needed to trust it, or not to."""

    value: Value
    """In `unit`."""
    unit: str
    source: str
    """Id of a Source."""
    as_of: dt.date
    """The day for which the value is stated."""
    confidence: Confidence
    disputed_by: tuple[str, ...] = ()
    """Ids of contradictions in which sources disagree about it."""
    note: str = ""
    origin: str = ""
    """The file it was read from, relative to the catalog's data for what ships, else the path."""

    def says_the_same(self, other: Fact) -> bool:
        """Whether both differ in nothing but the file they are in."""
        return msgspec.structs.replace(self, origin="") == msgspec.structs.replace(other, origin="")


def value_text(value: Value) -> str:
    """`value` as people write it: thousands separated, lists with commas."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{int(value):,}" if value == int(value) and abs(value) < 1e18 else f"{value:g}"
    if isinstance(value, tuple):
        return ", ".join(value)
    return str(value)
