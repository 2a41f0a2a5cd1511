"""A schema without a finite value is refused, and one that has a value never is: judged by looking
for a value of small schemas drawn at random."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.structured.compile import validate
from headrace.structured.json_schema import finite
from headrace.structured.json_schema.grammar import of_schema
from headrace.structured.json_schema.walk import check_schema
from tools.structured.language import Language

NAMES = ("a", "items")  # one of them is a keyword's
SCALARS: list[Any] = [None, 1, "s"]
TREE = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"]}
NO_VALUE: list[tuple[dict[str, Any], str]] = [
    ({"$ref": "#"}, "#/$ref"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
     "#/$defs/b/$ref"),
    ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
     "#/properties/a/$ref"),
    ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "#/items/$ref"),
    ({"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1}, "#/prefixItems/0/$ref"),
    ({"type": "array", "items": [{"$ref": "#"}], "minItems": 1}, "#/items/0/$ref"),
    ({"type": "object", "additionalProperties": {"$ref": "#"}, "minProperties": 1},
     "#/additionalProperties/$ref"),
    ({"type": "object", "patternProperties": {"^a": {"$ref": "#"}}, "required": ["ab"]},
     "#/patternProperties/^a/$ref"),
    ({"type": "object", "allOf": [{"properties": {"a": {"$ref": "#"}}}, {"required": ["a"]}]},
     "#/allOf/0/properties/a/$ref"),
    ({"anyOf": [{"$ref": "#/$defs/n"}, {"$ref": "#"}], "$defs": {"n": TREE}},
     "#/$defs/n/properties/a/$ref"),
    ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"a": {"$ref": "#"}},
     "anyOf": [{"required": ["a"]}]}}}, "#/$defs/n/properties/a/$ref"),
    ({**TREE, "$defs": {"n": False}}, "#/properties/a/$ref"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "pointer"), NO_VALUE, ids=str)
def test_a_schema_without_a_finite_value_is_refused_with_its_pointer(
    schema: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(RequestError, match="no value satisfies") as refused:
        check_schema(schema, "guided_json")
    assert f" {pointer}: " in str(refused.value)
    assert (refused.value.code, refused.value.param) == ("invalid_grammar", "guided_json")


@pytest.mark.parametrize(
    ("schema", "value", "endless"),
    [
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": TREE}},
         "{}", '{"a":'),
        ({"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": TREE}}, "[]", "[{"),
        ({"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}], "$defs": {"n": TREE}}, "null", "{"),
        ({"oneOf": [{"$ref": "#/$defs/n"}, {"type": "null"}],
          "$defs": {"n": {"$ref": "#/$defs/n"}}}, "null", "{"),
        # What a reference leads into stays where it is.
        ({"properties": {"a": {"type": "object", "properties": {"b": {"type": "null"}, "c":
          {"$ref": "#/properties/a"}}, "required": ["c"]}, "d": {"$ref":
          "#/properties/a/properties/b"}}, "type": "object"}, '{"d":null}', '{"a":{'),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_without_end_does_not_begin_where_others_are_allowed(
    schema: dict[str, Any], value: str, endless: str
) -> None:
    language = Language(of_schema(schema, "schema"))
    assert language.has(value)
    matcher = language.matcher()
    assert matcher.try_consume_tokens(list(endless.encode())) < len(endless)


def test_small_schemas_are_refused_where_they_have_no_value() -> None:
    outcomes = [_judge(random.Random(seed), plain=seed % 2 == 0) for seed in range(12)]
    assert 3 <= outcomes.count("no value") <= 10


@pytest.mark.long
def test_many_small_schemas_are_refused_where_they_have_no_value() -> None:
    outcomes = [_judge(random.Random(seed), plain=seed % 2 == 0) for seed in range(100, 220)]
    assert outcomes.count("no value") > 30
    assert outcomes.count("value") > 30


def test_references_in_a_circle_take_time_in_proportion() -> None:
    part = {"type": "object", "minProperties": 1}
    chain: dict[str, Any] = {
        f"n{index}": {
            **part, "allOf": [{"$ref": f"#/$defs/n{(index + step) % 700}"} for step in (1, 2, 3)]
        }
        for index in range(700)
    }  # fmt: skip
    with pytest.raises(RequestError, match="without end"):
        check_schema({"$ref": "#/$defs/n1", "$defs": chain}, "schema")


def test_a_schema_that_takes_too_long_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = {"$ref": "#/$defs/n", "$defs": {"n": TREE}}
    monkeypatch.setattr(finite, "MOST_READS", 3)
    assert check_schema(endless, "schema") == endless


def test_a_place_that_takes_too_long_to_find_is_not_refused_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(finite, "MOST_READS", 1000)
    count = 30
    wide = {
        "allOf": [*({"type": "object"} for _ in range(count)), {"type": "string"}],
        "required": [f"r{index}" for index in range(40)],
        "$defs": {f"d{index}": {"$ref": f"#/allOf/{index}"} for index in range(count)},
    }
    assert check_schema(wide, "schema")["required"] == wide["required"]
    with pytest.raises(RequestError) as refused:
        validate(of_schema(wide, "schema"), param="schema")
    assert refused.value.code == "invalid_grammar"


def test_constants_are_looked_at_once_however_often_their_schema_is_read() -> None:
    class Constants(list[int]):
        """The values of an `enum`, and how often they were gone through."""

        num_rounds = 0

        def __iter__(self) -> Iterator[int]:
            self.num_rounds += 1
            return super().__iter__()

    constants = Constants([1, 2])
    chain: dict[str, dict[str, Any]] = {"d0": {"type": "integer"}}
    chain |= {f"d{index}": {"$ref": f"#/$defs/d{index - 1}"} for index in range(1, 40)}
    inner = {("$defs", name): schema for name, schema in chain.items()}
    ways = [{"$ref": f"#/$defs/{name}"} for name in chain]
    root = {"enum": constants, "anyOf": ways, "$defs": chain}
    alternatives = {("anyOf", str(index)): way for index, way in enumerate(ways)}
    values = finite.Values({(): root, **alternatives, **inner}, set())
    assert not values.none_at(())
    assert constants.num_rounds == 1


def _judge(rng: random.Random, *, plain: bool) -> str:
    """How a schema was judged. plain: nothing holds together in it, so that all is decided."""
    schema = _drawn(rng, plain)
    judge = _Judge(schema)
    candidates, is_complete = judge.values()
    values = [value for value in candidates if judge.accepts(schema, value)]
    try:
        checked = check_schema(schema, "schema")
    except RequestError as error:
        assert "no value satisfies" in str(error)
        assert not values, (schema, values[:1])
        return "no value"
    assert values or not plain or not is_complete, schema
    settled = _Judge(checked)
    for value in candidates:
        assert settled.accepts(checked, value) == judge.accepts(schema, value), (schema, value)
    if plain:
        grammar = of_schema(schema, "schema")
        validate(grammar)
        Language(grammar).walk(rng, 20)  # raises LimitError in a value without end
    return "value"


def _drawn(rng: random.Random, plain: bool) -> dict[str, Any]:
    """A schema that refers to itself and to three definitions."""
    names = [f"d{index}" for index in range(3)]
    references = ["#", *(f"#/$defs/{name}" for name in names)]

    def schema(depth: int) -> dict[str, Any]:
        kind = rng.choice(("ref", "ref", "ref", "object", "array", "any", "scalar", "both"))
        if kind == "ref" or depth > 2:
            return {"$ref": rng.choice(references)}
        if kind == "scalar":
            return {"type": rng.choice(("null", "integer", "string"))} if rng.random() < 0.4 else {
                "$ref": rng.choice(references)
            }  # fmt: skip
        if kind == "any":
            return {"anyOf": [schema(depth + 1) for _ in range(rng.randint(1, 2))]}
        if kind == "both" and not plain:
            keyword = rng.choice(("allOf", "oneOf", "anyOf"))
            parts = [schema(depth + 1) for _ in range(2)]
            return {**part(depth, rng.choice(("object", "array"))), keyword: parts}
        return part(depth, "array" if kind == "array" else "object")

    def part(depth: int, kind: str) -> dict[str, Any]:
        drawn: dict[str, Any] = {"type": kind} if plain or rng.random() < 0.8 else {}
        if kind == "object":
            drawn["properties"] = {name: schema(depth + 1) for name in NAMES if rng.random() < 0.7}
            drawn["required"] = [name for name in NAMES if rng.random() < 0.6]
            if rng.random() < 0.5:
                drawn["additionalProperties"] = rng.choice((False, schema(depth + 1)))
        else:
            drawn["minItems"] = rng.randint(0, 2)
            drawn["items"] = schema(depth + 1)
            if rng.random() < 0.4:
                drawn["prefixItems"] = [schema(depth + 1)]
        return drawn

    return {**schema(0), "$defs": {name: schema(0) for name in names}}


class _Judge:
    """Which values a small schema accepts, and all values of NAMES and two items that differ for
    it."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root

    def values(self) -> tuple[list[Any], bool]:
        """Of those that the same schemas within accept, one each; and whether these are all."""
        inner = list(_schemas(self._root))
        found: dict[tuple[bool, ...], Any] = {}
        while True:
            known = list(found.values())
            more = [*SCALARS, [], *([each] for each in known), *map(list, product(known, known))]
            absent = object()
            for pair in product([absent, *known], repeat=2):
                members = zip(NAMES, pair, strict=True)
                more.append({name: value for name, value in members if value is not absent})
            for value in more:
                accepted = tuple(self.accepts(schema, value) for schema in inner)
                found.setdefault((*accepted, isinstance(value, list)), value)
            if len(found) == len(known) or len(known) > 7:
                return list(found.values()), len(found) == len(known)

    def accepts(self, schema: Any, value: Any, within: tuple[int, ...] = ()) -> bool:
        """Whether a value is valid. within: the schemas that wait for this one on that value."""
        if isinstance(schema, bool):
            return schema
        if id(schema) in within:
            return False
        within = (*within, id(schema))
        if "$ref" in schema and not self.accepts(self._target(schema["$ref"]), value, within):
            return False
        ways = {
            keyword: [self.accepts(each, value, within) for each in schema[keyword]]
            for keyword in ("allOf", "anyOf", "oneOf")
            if keyword in schema
        }
        if not (all(ways.get("allOf", ())) and any(ways.get("anyOf", [True]))):
            return False
        if sum(ways.get("oneOf", [True])) != 1 or schema.get("enum") == []:
            return False
        kinds = {dict: "object", list: "array", str: "string", int: "integer", type(None): "null"}
        if schema.get("type", kinds[type(value)]) != kinds[type(value)]:
            return False
        if isinstance(value, list):
            prefix = schema.get("prefixItems", [])
            rest = [schema.get("items", True)] * len(value)
            return len(value) >= schema.get("minItems", 0) and all(
                map(self.accepts, [*prefix, *rest], value)
            )
        if not isinstance(value, dict):
            return True
        named, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        return value.keys() >= {*schema.get("required", ())} and all(
            self.accepts(named.get(name, others), each) for name, each in value.items()
        )

    def _target(self, reference: str) -> Any:
        place: Any = self._root
        for step in reference.split("/")[1:]:
            place = place[step]
        return place


def _schemas(value: Any) -> Iterator[dict[str, Any]]:
    """All schemas that are drawn; a name is not a keyword."""
    yield value
    for keyword, inner in value.items():
        if keyword in ("properties", "$defs"):
            yield from (each for named in inner.values() for each in _schemas(named))
        elif keyword in ("items", "additionalProperties") and isinstance(inner, dict):
            yield from _schemas(inner)
        elif keyword in ("allOf", "anyOf", "oneOf", "prefixItems"):
            yield from (each for part in inner for each in _schemas(part))
