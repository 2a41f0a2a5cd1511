"""Schemas of tools that are made to do harm."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from headrace.errors import RequestError
from headrace.structured.compile import compile_grammar
from tests.structured.tools.held import held
from tests.structured.walking import walker_over_bytes

HOSTILE_SCHEMAS = {
    "2^31 repeats": {"properties": {"a": {"type": "string", "pattern": "a{2147483647}"}}},
    "nested repeats": {
        "properties": {"a": {"type": "string", "pattern": "((a{1,99}){1,99}){9,99}"}}
    },
    "catastrophic": {"properties": {"a": {"type": "string", "pattern": "^(a+)+(a|aa)*b{500}$"}}},
    "2^31 characters": {"properties": {"a": {"type": "string", "minLength": 2**31}}},
    "large enum": {"properties": {"a": {"enum": [f"value {i}" for i in range(50_000)]}}},
    "large const": {"properties": {"a": {"const": "x" * 1_000_000}}},
    "self reference": {"properties": {"a": {"$ref": "#/properties/a"}}},
    "references in a ring": {"properties": {"a": {"$ref": "#/$defs/b"}},
                             "$defs": {"b": {"$ref": "#/$defs/c"}, "c": {"$ref": "#/$defs/b"}}},
    "many properties": {"properties": {f"p{i}": {"type": "string"} for i in range(20_000)}},
    "deep": json.loads('{"properties": {"a": ' * 60 + "{}" + "}}" * 60),
    "deeper": json.loads('{"properties": {"a": ' * 300 + "{}" + "}}" * 300),
    "unions of unions": {
        "properties": {"a": json.loads('{"anyOf": [' * 20 + "{}, {}" + "]}" * 20)}
    },
    "doubling references": {
        "properties": {"a": {"$ref": "#/$defs/d0"}},
        "$defs": {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}
        | {"d40": {"type": "string"}},
    },
    "fewer doubling references": {
        "properties": {"a": {"$ref": "#/$defs/d0"}},
        "$defs": {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(25)}
        | {"d25": {"type": "string"}},
    },
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "pythonic", "gemma4", "minimax_m3"])
@pytest.mark.parametrize("hostile", HOSTILE_SCHEMAS)
def test_a_hostile_tool_is_refused_or_compiles_in_bounded_time(name: str, hostile: str) -> None:
    begun_s = time.process_time()
    try:
        grammar = held(name, HOSTILE_SCHEMAS[hostile])
        compiled = compile_grammar(grammar, walker_over_bytes().tokenizer)
        words = np.zeros(9, np.uint32)
        compiled.matcher().unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
    except RequestError as error:
        assert error.code in (
            "invalid_grammar", "grammar_too_large", "unsupported_schema", "schema_too_large",
            "invalid_schema",
        )  # fmt: skip
        assert len(str(error)) < 1000
    assert time.process_time() - begun_s < 3
