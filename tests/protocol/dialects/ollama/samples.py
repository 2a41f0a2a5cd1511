"""Bodies and calls that several tests use, and Ollama's own description of its API."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from headrace.protocol.neutral.call import ChatCall, Message
from headrace.protocol.neutral.part import Text

_SPEC = Path(__file__).parents[5] / "shared" / "assets" / "api-specs" / "ollama" / "openapi.yaml"

WEATHER_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def body(**fields: Any) -> bytes:
    """A request of one turn with these fields beside it."""
    messages = [{"role": "user", "content": "Hi"}]
    return json.dumps({"model": "llama3.2", "messages": messages} | fields).encode()


def call(dialect: str = "openai_chat", **fields: Any) -> ChatCall:
    """A call of one turn of a client of another dialect."""
    given = {"messages": (Message(role="user", parts=(Text(text="Hi"),)),), "model": "m"} | fields
    return ChatCall(dialect=dialect, **given)


def assert_as_described(value: object, schema: str) -> None:
    """`value` is what Ollama's description calls `schema`; skips without the description."""
    if not _SPEC.exists():
        pytest.skip("needs api-specs/ollama of the shared test assets")
    _validator(schema).validate(value)


@cache
def _validator(schema: str) -> Draft202012Validator:
    components = yaml.safe_load(_SPEC.read_text())["components"]
    return Draft202012Validator(
        {"$ref": f"#/components/schemas/{schema}", "components": components}
    )
