"""Quantities and spans: what is read of them, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.catalog.span import Span, parse_span
from headrace.catalog.units import SPELLINGS, known_unit, parse_quantity


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [
        ("80 GiB", "byte", 85_899_345_920),
        ("192 GB", "byte", 192_000_000_000),
        ("1.792 TB/s", "byte/s", 1_792_000_000_000),
        ("400 Gb/s", "byte/s", 50_000_000_000),
        ("989 TFLOP/s", "FLOP/s", 989e12),
        ("1979 TOP/s", "FLOP/s", 1979e12),
        ("10 us", "s", 1e-5),
        ("5.13 B parameters", "parameters", 5_130_000_000),
        ("95 %", "share", 0.95),
        ("1_000 tokens", "tokens", 1000),
        ("10 kW", "W", 10_000),
    ],
)
def test_quantities(text: str, unit: str, number: float) -> None:
    assert parse_quantity(text, unit) == number


@pytest.mark.parametrize("text", ["80 GiBi", "80", "GiB", "80 TB/s", "", "1.2.3 GB", "eighty GB"])
def test_no_quantities(text: str) -> None:
    with pytest.raises(ValueError, match=r"GiB|not a number"):
        parse_quantity(text, "byte")


def test_a_spelling_is_of_one_unit() -> None:
    spellings = [name for names in SPELLINGS.values() for name in names]
    assert len(spellings) == len(set(spellings))
    assert {known_unit(name) for name in spellings} == set(SPELLINGS)
    assert known_unit("furlongs") is None


@pytest.mark.parametrize(
    ("said", "span", "shown"),
    [
        (4.43, Span(4.43, 4.43), "4.43"),
        ([2, 4], Span(2, 4), "2-4"),
        ("2-4", Span(2, 4), "2-4"),
        ("2 to 4", Span(2, 4), "2-4"),
        ("up to 23", Span(None, 23), "up to 23"),
        ("from 100", Span(100, None), "from 100"),
        ("1,600", Span(1600, 1600), "1,600"),
    ],
)
def test_spans(said: object, span: Span, shown: str) -> None:
    assert parse_span(said) == span
    assert str(span) == shown


@pytest.mark.parametrize("said", [True, [4, 2], [1], "about 3", None, ["a", "b"], {"low": 1}])
def test_no_spans(said: object) -> None:
    with pytest.raises(ValueError):
        parse_span(said)


@given(st.floats(0, 1e12), st.floats(0, 1e12))
def test_a_span_has_its_ends_and_its_middle(one: float, other: float) -> None:
    low, high = sorted((one, other))
    span = parse_span([low, high])
    middle = span.middle
    assert middle is not None
    assert low in span and high in span and middle in span
    assert high + 1e12 not in span
    assert (span.exact is None) == (low != high)


def test_an_open_end_is_not_known() -> None:
    span = parse_span("up to 23")
    assert -5 in span and 23 in span and 23.1 not in span
    assert span.middle is None and span.exact is None
