"""Sorting, filtering and cells of reference tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import pytest

from headrace.catalog.fact import Confidence, Fact, Value
from headrace.catalog.rows import Hardware
from headrace.catalog.span import Span
from headrace.errors import CatalogError
from headrace.plan.reference.table import Column, Table, entry_of, table_of

COLUMNS = (
    Column("kind", "category"),
    Column("bandwidth", "bandwidth_bytes_per_s", figure=True),
    Column("price", "price_usd_per_hour", figure=True),
    Column("power", "power_w", figure=True),
)


def fact(value: Value, unit: str = "", *, day: int = 1, confidence: str = "high",
         disputed_by: tuple[str, ...] = (), note: str = "") -> Fact:  # fmt: skip
    return Fact(value=value, unit=unit, source=f"s{day}", as_of=dt.date(2026, 1, day), note=note,
                confidence=Confidence(confidence), disputed_by=disputed_by)  # fmt: skip


def row(name: str, **facts: Fact) -> Hardware:
    named: Mapping[str, Fact] = {key.replace("__", "."): one for key, one in facts.items()}
    return Hardware(id=name, name=name.title(), aliases=(f"{name}-x",), facts=named)


ROWS = [
    row("b", category=fact("GPU"), bandwidth_bytes_per_s=fact(2e12, "byte/s"),
        price_usd_per_hour__one=fact(Span(2, 4), "USD/h", day=3, disputed_by=("C01",)),
        price_usd_per_hour__two=fact(Span(None, 1), "USD/h", day=2, confidence="claim")),
    row("a", category=fact("soc"), bandwidth_bytes_per_s=fact(9e11, "byte/s")),
    row("c", category=fact("cpu"), hidden=fact(1)),
]  # fmt: skip
TABLE = table_of("Things", "hardware", ROWS, COLUMNS)


def ids(table: Table) -> list[str]:
    return [one.id for one in table.lines]


def test_cells_have_values_with_units_and_all_of_several() -> None:
    assert [one.heading for one in TABLE.columns] == ["kind", "bandwidth", "price"], (
        "power is empty"
    )
    texts = [one.text for one in TABLE.lines[0].entries]
    assert texts == ["GPU", "2 TB/s", "one $2/h to $4/h; two up to $1/h"]
    assert TABLE.lines[0].entries[2].order == 1 and TABLE.lines[2].entries[1].text == "–"
    assert set(TABLE.lines[2].facts) == {"category", "hidden"}


def test_a_line_says_what_is_behind_it() -> None:
    line = TABLE.lines[0]
    assert line.sources == ("s1", "s3", "s2") and line.as_of == "2026-01-01 to 2026-01-03"
    assert line.confidence is Confidence.CLAIM and line.disputed_by == ("C01",)
    assert TABLE.lines[1].as_of == "2026-01-01"


def test_sorted_by_number_either_way_with_what_lacks_it_last() -> None:
    assert ids(TABLE.sorted_by("bandwidth")) == ["a", "b", "c"]
    assert ids(TABLE.sorted_by("-bandwidth")) == ["b", "a", "c"]
    assert ids(TABLE.sorted_by("Name")) == ["a", "b", "c"]
    assert ids(TABLE.sorted_by("-kind")) == ["a", "b", "c"]
    assert ids(TABLE.sorted_by("kind")) == ["c", "b", "a"]


def test_an_unknown_column_names_those_there_are() -> None:
    with pytest.raises(CatalogError, match=r"no column 'bandwith'.*did you mean 'bandwidth'"):
        TABLE.sorted_by("-bandwith")


def test_filtered_by_words_in_names_and_cells() -> None:
    assert ids(TABLE.filtered("")) == ["b", "a", "c"]
    assert ids(TABLE.filtered("gpu TB/s")) == ["b"]
    assert ids(TABLE.filtered("A-X")) == ["a"]
    assert ids(TABLE.filtered("gpu soc")) == []


def test_notes_are_in_the_cell_where_the_column_says_so() -> None:
    one = row("d", category=fact("GPU", note="As sold."))
    assert entry_of(one, Column("kind", "category", notes=True)).text == "GPU (As sold)"
    assert entry_of(one, Column("kind", "category")).text == "GPU"


def test_json_has_the_facts_of_each_cell() -> None:
    made = TABLE.as_dict()
    cell = made["lines"][0]["cells"]["price"]
    assert cell["facts"]["price_usd_per_hour.one"]["source"] == "s3"
    assert cell["facts"]["price_usd_per_hour.one"]["disputed_by"] == ("C01",)
    assert made["lines"][0]["as_of"] == ["2026-01-01", "2026-01-03"]
