"""Formats of numbers are ranges, and a format says nothing about values of other types."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.structured.json_schema.bounds import MOST
from headrace.structured.json_schema.grammar import of_schema
from headrace.structured.json_schema.walk import check_schema
from tests.structured.matching import Language

INTEGER = {"type": "integer"}


@pytest.mark.parametrize(
    ("form", "inside", "outside"),
    [
        ("int8", [-128, 127], [-129, 128]),
        ("int16", [-32768, 32767], [32768]),
        ("int32", [-(2**31), 2**31 - 1], [-(2**31) - 1, 2**31]),
        ("int64", [-MOST, 0, MOST], [-MOST - 1, 2**63]),
        ("uint8", [0, 255], [-1, 256]),
        ("uint16", [0, 65535], [-1, 65536]),
        ("uint32", [0, 2**32 - 1], [-1, 2**32]),
        ("uint64", [0, MOST], [-1, 2**64]),
    ],
)
def test_a_format_of_whole_numbers_is_a_range(
    form: str, inside: list[int], outside: list[int]
) -> None:
    for types in ("integer", "number", ["null", "number"], ["integer", "string"]):
        language = Language(of_schema({"type": types, "format": form}, "schema"))
        assert language.error == ""
        assert [number for number in inside if not language.has_value(number)] == []
        assert [number for number in (*outside, 1.5) if language.has_value(number)] == []


@pytest.mark.parametrize(
    ("schema", "inside", "outside"),
    [
        ({"minimum": 0, "maximum": 9}, [0, 9], [-1, 10]),
        ({"minimum": -(10**12), "maximum": 9}, [-(2**31), 9], [-(2**31) - 1, 10]),
        ({"exclusiveMinimum": 0}, [1, 2**31 - 1], [0, 2**31]),
        ({"exclusiveMaximum": 10**12}, [2**31 - 1], [2**31]),
        ({"minimum": -(10**12), "exclusiveMinimum": True}, [-(2**31)], [-(2**31) - 1]),
        ({"minimum": 5, "exclusiveMinimum": True}, [6], [5]),
        ({"enum": [1, 2**31]}, [1], [2**31]),
        ({"multipleOf": 1000}, [2147483000], [2147484000]),
        ({"allOf": [{"maximum": 3}]}, [3], [4]),
    ],
    ids=str,
)
def test_the_tighter_bound_holds(
    schema: dict[str, Any], inside: list[int], outside: list[int]
) -> None:
    language = Language(of_schema({**INTEGER, "format": "int32", **schema}, "schema"))
    assert language.error == ""
    assert [number for number in inside if not language.has_value(number)] == []
    assert [number for number in outside if language.has_value(number)] == []


@pytest.mark.parametrize("beside", [{}, {"allOf": [{"maximum": 9}]}, {"anyOf": [{}]}], ids=str)
def test_numbers_of_a_schema_without_types_are_whole_and_other_values_stay(
    beside: dict[str, Any],
) -> None:
    language = Language(of_schema({"format": "int32", **beside}, "schema"))
    assert language.error == ""
    valid = (3, "a", None, True, [], {})
    assert [value for value in valid if not language.has_value(value)] == []
    assert [value for value in (1.5, 2**31) if language.has_value(value)] == []


def test_a_reference_may_have_a_format_of_numbers_beside_it() -> None:
    schema = {"$ref": "#/$defs/n", "format": "uint8", "$defs": {"n": {"type": ["integer", "null"]}}}
    language = Language(of_schema(schema, "schema"))
    assert [value for value in (0, 255, 256, -1, None) if language.has_value(value)] == [
        0, 255, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "valid"),
    [
        ({"type": "number", "format": "float"}, 1.5),
        ({"type": "number", "format": "double"}, 1.5),
        ({"format": "double"}, "a"),
        ({"type": "integer", "format": "date"}, 1),
        ({"type": "integer", "format": "a-format-of-its-own"}, 1),
        ({"type": ["array", "null"], "format": "ipv4"}, []),
        ({"type": "object", "format": "int32"}, {}),
    ],
    ids=str,
)
def test_a_format_says_nothing_about_values_that_it_is_not_of(
    schema: dict[str, Any], valid: Any
) -> None:
    language = Language(of_schema(schema, "schema"))
    assert language.error == ""
    assert language.has_value(valid)


@pytest.mark.parametrize(
    "schema",
    [{"type": "string", "format": "int32"}, {"type": ["string", "null"], "format": "iri"},
     {"format": "iri"}, {"type": ["integer", "string"], "format": "iri"}],
    ids=str,
)  # fmt: skip
def test_a_format_of_texts_that_is_not_enforced_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=r"#/format is .*date.*; omit it") as refused:
        check_schema(schema, "schema")
    assert refused.value.code == "unsupported_schema"
    assert "int32" in str(refused.value)


@pytest.mark.parametrize("types", ["integer", "number"])
@pytest.mark.parametrize(
    "bounds",
    [
        {"minimum": -(2**63), "maximum": 2**63 - 1},
        {"minimum": -1e19, "exclusiveMaximum": 1e30},
        {"exclusiveMinimum": -(10**400), "maximum": 10**400},
        {"minimum": -(2**64), "exclusiveMinimum": True, "maximum": 2**63, "exclusiveMaximum": True},
    ],
    ids=str,
)
def test_bounds_beyond_the_numbers_of_answers_are_bounds_of_all_numbers(
    types: str, bounds: dict[str, Any]
) -> None:
    language = Language(of_schema({"type": types, **bounds}, "schema"))
    assert language.error == ""
    assert [number for number in (-MOST, 0, MOST) if not language.has_value(number)] == []
    assert [number for number in (-(2**63), 2**63) if language.has_value(number)] == []


def test_bounds_of_what_is_no_number_of_an_answer_stay() -> None:
    text = {"type": "string", "minimum": 2**64}
    assert check_schema(text, "schema") == text
    assert check_schema({"const": 2**65, "maximum": 2**66}, "schema")["maximum"] == 2**66
    tighter = {"maximum": 3, "exclusiveMaximum": 1e30}
    assert check_schema(tighter, "schema") == {"maximum": 3}


def test_a_number_with_one_bound_beyond_has_the_other() -> None:
    for bound in ({"minimum": -(2**63)}, {"maximum": 2**63}):
        language = Language(of_schema({"type": "number", **bound}, "schema"))
        assert [each for each in (-MOST, MOST) if not language.has_value(each)] == []
        assert not language.has("1" * 20)
