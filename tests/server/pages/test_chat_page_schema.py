"""What the chat page says of an answer and its schema is what an independent validator says."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from headrace import server

SCRIPT = Path(server.__file__).parent / "pages" / "chat" / "schema_check.js"
Judge = Callable[[list[tuple[Any, Any]]], list[dict[str, Any]]]

TREE = {
    "$ref": "#/$defs/tree",
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
            "required": ["kids"],
            "additionalProperties": False,
        }
    },
}
SCHEMAS: list[Any] = [
    True,
    False,
    {},
    {"type": "integer"},
    {"type": ["string", "null"]},
    {"enum": [1, "a", [1, {"b": None}], {"a": 1, "b": [2]}]},
    {"const": {"a": [1, 2]}},
    {"const": None},
    {"type": "object", "required": ["a", "toString"]},
    {"properties": {"a": {"type": "number"}, "b": False}},
    {"properties": {"a": {}}, "additionalProperties": False},
    {"additionalProperties": {"type": "array"}},
    {"items": {"type": "boolean"}},
    {"prefixItems": [{"type": "number"}, {"type": "string"}], "items": False},
    {"anyOf": [{"type": "string"}, {"properties": {"a": {"const": 1}}, "required": ["a"]}]},
    {"$ref": "#/x~1y", "x/y": {"type": "object"}},
    TREE,
    {"minimum": 1, "exclusiveMaximum": 1.5, "minLength": 1, "maxItems": 1},
    {"maximum": 1, "exclusiveMinimum": 0, "maxLength": 0, "minItems": 2},
]
VALUES: list[Any] = [
    None, True, 0, 1, 1.0, 1.5, "", "a", "\U0001f600", [], [1], [True, False], [1, "a"],
    [1, "a", 2], [1, {"b": None}], {}, {"a": 1}, {"a": "x"}, {"b": 1}, {"a": [1, 2]},
    {"b": [2], "a": 1},
    {"constructor": 1}, {"a": 1, "toString": 2}, {"kids": []}, {"kids": [{"kids": []}]},
    {"kids": [{"kids": [{}]}]}, {"kids": [], "more": 1},
]  # fmt: skip


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node, which runs the script")
    script = tmp_path_factory.mktemp("page") / "check.mjs"
    # Cases by stdin, judgements by stdout.
    main = (
        "import { readFileSync } from 'node:fs';\n"
        "const cases = JSON.parse(readFileSync(0));\n"
        "console.log(JSON.stringify(cases.map(([schema, value]) => checkSchema(schema, value))));\n"
    )
    script.write_text(SCRIPT.read_text(encoding="utf-8") + main, encoding="utf-8")

    def judged(cases: list[tuple[Any, Any]]) -> list[dict[str, Any]]:
        done = subprocess.run(
            [node, str(script)], input=json.dumps(cases), capture_output=True, text=True, check=True
        )
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    return judged


def test_it_is_what_a_validator_says(judge: Judge) -> None:
    cases = list(product(SCHEMAS, VALUES))
    fits = [Draft202012Validator(schema).is_valid(value) for schema, value in cases]
    judgements = judge(cases)
    assert [judgement["fault"] is None for judgement in judgements] == fits
    assert 0.2 < sum(fits) / len(fits) < 0.8
    unread = {keyword for judgement in judgements for keyword in judgement["unread"]}
    assert unread == {"x/y"}


@pytest.mark.parametrize(
    ("schema", "value", "fault"),
    [
        ({"type": ["string", "null"]}, 5, "the answer is not of type string or null"),
        (TREE, {"kids": [{"kids": []}, {}]}, "kids[1] has no kids"),
        ({"properties": {"a": {"maxItems": 1}}}, {"a": [1, 2]}, "a is beyond maxItems, which is 1"),
        ({"items": {"const": 1}}, [1, 2], "item [1] is not the value of const"),
        (
            {"properties": {"a": {"additionalProperties": False}}},
            {"a": {"b": 1}},
            "a.b is not allowed",
        ),
    ],
)
def test_a_fault_is_named_with_its_place(judge: Judge, schema: Any, value: Any, fault: str) -> None:
    assert judge([(schema, value)]) == [{"fault": fault, "unread": []}]


@pytest.mark.parametrize(
    ("schema", "value", "unread"),
    [
        ({"type": "string", "pattern": "^a", "title": "A"}, "b", ["pattern"]),
        ({"multipleOf": 5, "not": {}}, 3, ["multipleOf", "not"]),
        ({"patternProperties": {"^x": {}}, "additionalProperties": False}, {"x": 1},
         ["patternProperties"]),
        ({"$ref": "https://example.org/other"}, 1, ["$ref"]),
        ({"$ref": "#"}, 1, ["$ref"]),
        ({"items": [{"type": "string"}]}, [1], ["items"]),
        ({"anyOf": [{"$ref": "#"}, {"$ref": "#"}, False]}, 1, ["$ref", "anyOf"]),
    ],
)  # fmt: skip
def test_what_is_not_read_is_named_and_ends(
    judge: Judge, schema: Any, value: Any, unread: list[str]
) -> None:
    [judgement] = judge([(schema, value)])
    assert judgement["fault"] is None
    assert set(judgement["unread"]) <= set(unread)
    assert judgement["unread"]
