"""No grammar forces more text at once than a step has time for, however it is written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import RequestError
from headrace.structured.compile import compile_grammar
from headrace.structured.forced_text import MAX_FORCED_BYTES, forced_by
from headrace.structured.json_schema.walk import check_schema
from headrace.structured.request import grammar_of
from tools.structured.language import byte_tokenizer

LONG = "x" * (MAX_FORCED_BYTES + 1)
PAIR = {"type": "array", "minItems": 2, "items": False}


def _doubled(depth: int) -> dict[str, Any]:
    """Definitions of lists, each of which has the next one twice."""
    pairs = {
        f"d{at}": {**PAIR, "prefixItems": [{"$ref": f"#/$defs/d{at + 1}"}] * 2}
        for at in range(depth)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**pairs, f"d{depth}": {"const": 1}}}


CLOSED = {"additionalProperties": False, "type": "object"}
ONE = {**CLOSED, "required": ["a"], "properties": {"a": {"const": 1}}}
TOO_LONG: dict[str, tuple[dict[str, Any], str]] = {
    "a constant": ({"properties": {"a": {"const": LONG}}}, "'const' at #/properties/a/const"),
    "one of several": ({"enum": ["a", LONG]}, "'enum' at #/enum"),
    "a name": ({"required": [LONG]}, "'required' at #/required"),
    "a name that may be missing": ({"properties": {LONG: {}}}, "'properties' at #/properties"),
    "an expression": ({"pattern": f"^{LONG}"}, "'pattern' at #/pattern"),
    "a repeated letter": ({"type": "string", "pattern": "^a{20000}$"}, "'pattern' at #/pattern"),
    "an expression of names": ({"patternProperties": {f"^{LONG}$": {}}}, "'patternProperties' at "),
    "items": ({"items": {"const": "abc"}, "minItems": 9000}, "'minItems' at #/minItems"),
    "objects": ({"items": ONE, "minItems": 3000}, "'minItems' at #/minItems"),
    "references that double": (_doubled(20), "'minItems' at #/$defs/"),
    "behind a reference": (
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"const": LONG}]}}},
        "'const' at #/$defs/a/anyOf/0/const",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_LONG)
def test_a_schema_that_forces_a_long_text_is_refused_with_its_place(name: str) -> None:
    schema, place = TOO_LONG[name]
    with pytest.raises(RequestError, match="leaves no choice") as refused:
        grammar_of({"guided_json": schema})
    assert refused.value.code == "schema_too_large"
    assert refused.value.param == "guided_json"
    for part in (place, f"at most {MAX_FORCED_BYTES} are accepted", "Shorten"):
        assert part in str(refused.value)
    assert len(str(refused.value)) < 500


def test_long_answers_that_have_a_choice_are_accepted() -> None:
    names = [f"property_{at}" for at in range(1500)]
    for schema in (
        {"type": "array", "items": {"type": "string"}, "minItems": 100_000},
        {"type": "object", "properties": {name: {"type": "null"} for name in names}},
        {**CLOSED, "properties": {name: {"type": "boolean"} for name in names}, "required": names},
        {"type": "string", "pattern": "^[^a]{20000}$"},
        {"anyOf": [{"const": f"value {at}"} for at in range(3000)]},
        {"properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        _doubled(9),
    ):
        check_schema(schema, "schema")


LETTERS = st.sampled_from(
    ["a", "b", "é", r"\.", r"\x41", r"\u00e9", "[ab]", "[a]", "[b-b]", ".", r"\d", "[^]]", ""]
)
TIMES = st.sampled_from(["", "?", "*", "+", "{2}", "{0,2}", "{3,}", "{2,3}"])
EXPRESSIONS = st.recursive(
    LETTERS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda ways: f"({'|'.join(ways)})"),
        st.tuples(inner, TIMES).map(lambda pair: f"({pair[0]}){pair[1]}"),
    ),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(pattern=EXPRESSIONS, seed=st.randoms(use_true_random=False))
def test_never_is_more_forced_than_is_counted(pattern: str, seed: Any) -> None:
    try:
        grammar = grammar_of({"guided_regex": pattern or "a"})
        assert grammar is not None
        matcher = compile_grammar(grammar, byte_tokenizer()).matcher()
    except RequestError:
        return
    bound = forced_by(pattern or "a").run
    for _ in range(12):
        assert len(matcher.compute_ff_bytes()) <= bound
        letters = [each for each in b"abA.0c\xc3\xa9" if matcher.validate_tokens([each])]
        if matcher.is_stopped() or not letters or not matcher.consume_token(seed.choice(letters)):
            return


def test_a_choice_counts_its_longest_text_and_repeats_multiply() -> None:
    counted = {
        "abc": (3, 3), "a|bcd": (None, 3), "(ab){5}c?[d]ef": (13, 13), "a.b": (None, 1),
        "a{9}{9}": (81, 81), "(a[bc]d){7}": (None, 2), "é": (2, 2), r"\u{e9}a": (3, 3),
        "(?P<name>ab)c": (3, 3), "": (0, 0), "a{0}": (0, 0),
    }  # fmt: skip
    found = {pattern: forced_by(pattern) for pattern in counted}
    assert {pattern: (each.fixed, each.run) for pattern, each in found.items()} == counted
    assert forced_by("a{99999999}" * 3 + "{99999999}" * 40).run > 1 << 30
    assert forced_by("(" * 1000 + "ab") == (2, 2, 2, 2, b"ab")


def test_constants_of_a_sequence_are_one_text() -> None:
    constant = {"type": "const_string", "value": "x" * 15_000}
    letter = {"type": "regex", "pattern": "[ab]"}
    for elements, length in (([constant] * 8, 120_000), ([letter, constant, constant], 30_000)):
        tag = {"type": "structural_tag", "format": {"type": "sequence", "elements": elements}}
        with pytest.raises(RequestError, match=f"no choice about {length} bytes") as refused:
            grammar_of({"structured_outputs": {"structural_tag": tag}})
        assert refused.value.code == "grammar_too_large"
    between = {"type": "sequence", "elements": [constant, letter, constant]}
    tag = {"type": "structural_tag", "format": between}
    assert grammar_of({"structured_outputs": {"structural_tag": tag}}) is not None


_ITEMS = {"type": "array", "items": {"const": "x" * 10}, "minItems": 800, "maxItems": 800}


@pytest.mark.parametrize(
    "part",
    [
        {"type": "regex", "pattern": "a{10000}"},
        {"type": "json_schema", "json_schema": _ITEMS},
        {"type": "tag", "begin": "<a>", "content": {"type": "regex", "pattern": "a{9000}"},
         "end": "</a>"},
    ],
    ids=["regex", "schema", "tag"],
)  # fmt: skip
def test_parts_of_a_tag_that_follow_each_other_are_counted_together(part: dict[str, Any]) -> None:
    def of(*elements: dict[str, Any]) -> dict[str, Any]:
        tag = {"type": "sequence", "elements": list(elements)}
        return {"response_format": {"type": "structural_tag", "format": tag}}

    assert grammar_of(of(part)) is not None
    assert grammar_of(of(part, {"type": "regex", "pattern": "[0-9]"}, part)) is not None
    with pytest.raises(RequestError, match="leaves no choice") as refused:
        grammar_of(of(part, part))
    assert (refused.value.param, refused.value.code) == (
        "response_format.format", "grammar_too_large",
    )  # fmt: skip


@pytest.mark.parametrize(
    "pattern",
    ["[a]{100000}", "(a|a){20000}", "(a|aa){20000}", "(ab|abab){9000}", "a{10000}a*a{10000}"],
)
def test_letters_that_agree_are_counted_behind_a_choice(pattern: str) -> None:
    assert forced_by(pattern).run > MAX_FORCED_BYTES


@pytest.mark.parametrize(
    "item",
    [
        {"anyOf": [{"const": "a" * 8}] * 2},
        {"enum": ["a" * 8] * 2},
        {"type": "null"},
        {"type": "integer", "minimum": 10, "maximum": 10},
    ],
)
def test_items_with_one_value_are_counted(item: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="leaves no choice"):
        check_schema({"type": "array", "minItems": 6000, "items": item}, "schema")
