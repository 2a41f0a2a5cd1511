"""docs/schema_keywords.md: what becomes of every keyword of JSON Schema, found by trying each.

A keyword is tried in a property's schema, so that a pointer has to say where it is, or in the whole
schema where it means something else there. "held": the
grammar refuses a value that the keyword forbids and takes one that it allows.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from headrace.errors import RequestError
from headrace.structured.json_schema.formats import FORMATS
from headrace.structured.json_schema.grammar import of_schema
from tools.structured.language import Language

_NOTHING = object()


class Keyword(NamedTuple):
    """A keyword as it is tried."""

    name: str
    drafts: str
    schema: dict[str, Any]
    allowed: Any = _NOTHING
    """A value that it allows; not given for annotations."""
    forbidden: Any = _NOTHING
    at_root: bool = False
    """Whether it is tried in the whole schema instead of a property's."""


ENDLESS = {
    "type": "object", "properties": {"a": {"$ref": "#/$defs/endless"}}, "required": ["a"],
}  # fmt: skip
_OVERLAPPING = [{"minimum": 1}, {"maximum": 2}]
KEYWORDS = (
    Keyword("$anchor", "2019-09, 2020-12", {"$anchor": "a"}),
    Keyword("$comment", "7 to 2020-12", {"$comment": "a"}),
    Keyword("$defs, definitions", "all", {"$defs": {"a": {}}, "definitions": {"a": {}}}),
    Keyword("$dynamicAnchor", "2020-12", {"$dynamicAnchor": "a"}),
    Keyword("$dynamicRef", "2020-12", {"$dynamicRef": "#a"}),
    Keyword("$id of the whole schema", "6 to 2020-12", {"$id": "https://example.com/a"},
            at_root=True),
    Keyword("$id below it", "6 to 2020-12", {"$id": "https://example.com/a"}),
    Keyword("$recursiveAnchor", "2019-09", {"$recursiveAnchor": True}),
    Keyword("$recursiveRef", "2019-09", {"$recursiveRef": "#"}),
    Keyword("$ref within the schema", "all", {"$ref": "#/$defs/whole"}, 1, "a"),
    Keyword("$ref in a circle, so that every value would have another within it", "all",
            {"$ref": "#/$defs/endless"}, at_root=True),
    Keyword("$ref in a circle, with other keywords beside it", "all",
            {"items": {"$ref": "#/properties/p", "maxItems": 1}}),
    Keyword("$ref elsewhere", "all", {"$ref": "https://example.com/a"}),
    Keyword("$schema of the whole schema: draft 4 to 2020-12", "all",
            {"$schema": "https://json-schema.org/draft/2020-12/schema"}, at_root=True),
    Keyword("$schema of the whole schema: any other", "",
            {"$schema": "https://example.com/schema"}, at_root=True),
    Keyword("$schema below it", "all",
            {"$schema": "https://json-schema.org/draft/2020-12/schema"}),
    Keyword("$vocabulary", "2019-09, 2020-12", {"$vocabulary": {"https://example.com": True}}),
    Keyword("additionalItems", "4 to 2019-09", {"items": [{}], "additionalItems": False}, [1],
            [1, 2]),
    Keyword("additionalProperties", "all", {"additionalProperties": False}, {}, {"a": 1}),
    Keyword("allOf", "all", {"allOf": [{"minimum": 1}, {"maximum": 2}], "type": "number"}, 1, 3),
    Keyword("anyOf", "all", {"anyOf": [{"type": "null"}, {"type": "boolean"}]}, None, 1),
    Keyword("const", "6 to 2020-12", {"const": [1]}, [1], [2]),
    Keyword("const of more than 16 KiB, or as much other text without a choice", "all",
            {"const": "a" * 20_000}),
    Keyword("contains", "6 to 2020-12", {"contains": {"const": 1}}, [1], [2]),
    Keyword("contentEncoding, contentMediaType, contentSchema", "7 to 2020-12",
            {"contentEncoding": "base64", "contentMediaType": "text/html", "contentSchema": {}}),
    Keyword("default, deprecated, examples, readOnly, writeOnly", "all",
            {"default": 1, "deprecated": True, "examples": [1], "readOnly": True,
             "writeOnly": True}),
    Keyword("dependencies", "4 to 7", {"dependencies": {"a": ["b"]}}, {}, {"a": 1}),
    Keyword("dependentRequired", "2019-09, 2020-12", {"dependentRequired": {"a": ["b"]}}, {},
            {"a": 1}),
    Keyword("dependentSchemas", "2019-09, 2020-12",
            {"dependentSchemas": {"a": {"required": ["b"]}}},
            {}, {"a": 1}),
    Keyword("enum", "all", {"enum": [1, "a"]}, "a", "b"),
    Keyword("exclusiveMaximum", "6 to 2020-12", {"type": "number", "exclusiveMaximum": 2}, 1, 2),
    Keyword("exclusiveMinimum", "6 to 2020-12", {"type": "number", "exclusiveMinimum": 2}, 3, 2),
    Keyword("exclusiveMinimum: 0 with the other bound less than 1 away", "6 to 2020-12",
            {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}),
    Keyword("exclusiveMaximum: true", "4", {"type": "number", "maximum": 2,
            "exclusiveMaximum": True},
            1, 2),
    Keyword("format: " + ", ".join(sorted(FORMATS)), "all", {"type": "string", "format": "date"},
            "2024-02-29", "2023-02-29"),
    Keyword("format: int8 to int64, uint8 to uint64, of numbers (OpenAPI's): whole, in the range",
            "all", {"type": "integer", "format": "int32"}, 2**31 - 1, 2**31),
    Keyword("format: float, double, of numbers (OpenAPI's)", "all",
            {"type": "number", "format": "double"}),
    Keyword("format of a type other than string: any other", "all",
            {"type": "integer", "format": "date"}),
    Keyword("format: any other", "all", {"type": "string", "format": "iri"}, "a", "b"),
    Keyword("if, then, else", "7 to 2020-12", {"if": {"const": 1}, "then": False}, 2, 1),
    Keyword("items", "all", {"items": {"type": "null"}}, [None], [1]),
    Keyword("items: a list", "4 to 2019-09", {"items": [{"type": "null"}]}, [None], [1]),
    Keyword("maxContains, minContains", "2019-09, 2020-12", {"maxContains": 1}),
    Keyword("maxItems", "all", {"maxItems": 1}, [1], [1, 2]),
    Keyword("maxLength", "all", {"maxLength": 1}, "é", "ab"),
    Keyword("maxProperties", "all", {"maxProperties": 1}, {}, {"a": 1, "b": 2}),
    Keyword("maxProperties beside optional properties", "all",
            {"maxProperties": 1, "properties": {"a": {}}}),
    Keyword("maximum", "all", {"type": "number", "maximum": 2}, 2, 3),
    Keyword("minItems", "all", {"minItems": 1}, [1], []),
    Keyword("minLength", "all", {"minLength": 2}, "ab", "é"),
    Keyword("minProperties: 1, or no more than are required", "all", {"minProperties": 1}, {"a": 1},
            {}),
    Keyword("minProperties: more", "all", {"minProperties": 2}, {"a": 1, "b": 2}, {"a": 1}),
    Keyword("minimum", "all", {"type": "number", "minimum": 2}, 2, 1),
    Keyword("multipleOf", "all", {"type": "integer", "multipleOf": 7}, 14, 15),
    Keyword("multipleOf: more than 10,000 remainders", "all", {"multipleOf": 123457}, 0, 1),
    Keyword("not", "all", {"not": {"type": "null"}}, 1, None),
    Keyword("oneOf, alternatives that cannot overlap", "all",
            {"oneOf": [{"type": "null"}, {"type": "boolean"}]}, None, 1),
    Keyword("oneOf, alternatives that may overlap", "all", {"oneOf": _OVERLAPPING}, 0, 1),
    Keyword("pattern", "all", {"pattern": "^a+$"}, "aa", "ab"),
    Keyword("pattern with looking ahead or behind, \\b, back-references", "all",
            {"pattern": "^(?!a)"}, "b", "a"),
    Keyword("patternProperties", "all", {"patternProperties": {"^a$": {"type": "null"}}},
            {"a": None},
            {"a": 1}),
    Keyword("patternProperties that overlap", "all", {"patternProperties": {"a": {}, "b": {}}}),
    Keyword("prefixItems", "2020-12", {"prefixItems": [{"type": "null"}]}, [None], [1]),
    Keyword("properties", "all", {"properties": {"a": {"type": "null"}}}, {"a": None}, {"a": 1}),
    Keyword("propertyNames", "6 to 2020-12", {"propertyNames": {"maxLength": 1}}, {"a": 1},
            {"ab": 1}),
    Keyword("required", "all", {"required": ["a"]}, {"a": 1}, {}),
    Keyword("title, description", "all", {"title": "a", "description": "b"}),
    Keyword("type", "all", {"type": ["null", "integer"]}, None, "a"),
    Keyword("unevaluatedItems", "2019-09, 2020-12", {"unevaluatedItems": False}, [], [1]),
    Keyword("unevaluatedProperties", "2019-09, 2020-12", {"unevaluatedProperties": False}, {},
            {"a": 1}),
    Keyword("a value of another kind than its keyword has (minLength: -1, required: \"a\")", "all",
            {"minLength": -1}),
    Keyword("uniqueItems", "all", {"uniqueItems": True}, [1, 2], [1, 1]),
    Keyword("a name that JSON Schema does not know", "", {"x-own": 1}),
)  # fmt: skip

_HEAD = """# Keywords of JSON Schema

What becomes of each keyword in a schema that an answer is held to (`response_format`,
`structured_outputs`, `guided_json`, `json_schema`, parameters of tools). *held*: no answer passes
that the keyword forbids. *annotation*: it changes no value, as JSON Schema says. *refused*: a 400
that names the keyword and where it is; no answer is ever written under a 200 that a schema does
not hold. This page is generated: `make docs`.

| keyword | drafts | here |
|---|---|---|
"""

_FOOT = """
## Where answers are narrower than the schema

A valid value is never written in these forms, though the schema has it:

- **Order of properties**: that of `properties` (of `allOf`, one part after another), then others.
- **White space**: none; text is compact.
- **Numbers**: of magnitude up to 2^63 where the schema states no bound, or one beyond; whole
  numbers where the schema says `integer`, or where a `const` is whole,
  have no point and no exponent; a multiple of 0.25 has its two places (`-1.50`).
- **Texts**: one spelling for each character. Control characters other than `\\b \\f \\n \\r \\t`
  are not written, nor are other escapes.
- **Formats**: no leap second, no name of a host in another alphabet, no rarer forms of addresses.
- **The limit of a step**: a value of which one token takes more work than is allowed (many
  alternatives that fit at once, counted texts) ends its request with `grammar_too_large`.
- **GBNF and Lark**: of several words that may come next the longest is read and no way back is
  found, so a rule that can be read in two ways may lose one of them. llama.cpp's `arithmetic.gbnf`
  does: the end of a line is read as white space of the expression before it.

## Where an answer may be odd

A name that `properties` does not have may be written twice; readers take the last.
"""


def status(keyword: Keyword) -> str:
    """What becomes of it: "held", "annotation", or how it is refused."""
    schema: dict[str, Any] = {
        "properties": {"p": {} if keyword.at_root else keyword.schema},
        "$defs": {"whole": {"type": "integer"}, "endless": ENDLESS},
        **(keyword.schema if keyword.at_root else {}),
    }
    try:
        language = Language(of_schema(schema, "schema"))
    except RequestError as error:
        text = str(error)
        pointer = "#/" if keyword.at_root else "#/properties/p"
        where = "with its pointer" if pointer in text else "without a pointer"
        return f"refused, {where} (`{error.code}`)"
    if keyword.forbidden is _NOTHING:
        return "annotation" if keyword.allowed is _NOTHING else "?"
    if language.has(_written(keyword.allowed)) and not language.has(_written(keyword.forbidden)):
        return "held"
    return "**not held**"


def _written(value: Any) -> str:
    return json.dumps({"p": value}, separators=(",", ":"), ensure_ascii=False)


def page() -> str:
    """The page."""
    rows = [f"| {each.name} | {each.drafts} | {status(each)} |\n" for each in KEYWORDS]
    return _HEAD + "".join(rows) + _FOOT
