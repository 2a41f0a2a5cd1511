"""What in a body points to things that a provider stores."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.gateway.serving.stored_references import COPIED, stored_references
from headrace.protocol.json_object import JsonObject

FILE = {"type": "file", "file_id": "file-a"}


def message(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


@pytest.mark.parametrize(
    ("dialect", "body", "found"),
    [
        ("openai-responses", {"previous_response_id": "r"}, {("previous_response_id", "r")}),
        ("openai-responses", {"conversation": "c"}, {("conversation", "c")}),
        ("openai-responses", {"conversation": {"id": "c"}}, {("conversation", "c")}),
        (
            "openai-responses",
            {"input": [{"type": "item_reference", "id": "a"}, {"id": "b"}]},
            {("item_reference", "a"), ("item_reference", "b")},
        ),
        (
            "openai-responses",
            {
                "input": [
                    {"type": "image_generation_call", "id": "a"},
                    {"type": "image_generation_call", "id": "b", "result": None},
                    {"type": "image_generation_call", "id": "c", "result": "iVBORw0KGgo="},
                ]
            },
            {("image_generation_call", "a"), ("image_generation_call", "b")},
        ),
        (
            "openai-responses",
            {"input": [message({"type": "input_image", "file_id": "f"})]},
            {("file_id", "f")},
        ),
        (
            "openai-responses",
            {"input": [{"type": "function_call_output", "call_id": "c", "output": [FILE]}]},
            {("file_id", "file-a")},
        ),
        (
            "openai-responses",
            {
                "tools": [
                    {"type": "file_search", "vector_store_ids": ["v"]},
                    {"type": "code_interpreter", "container": "cntr"},
                    {"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["g"]}},
                ]
            },
            {("vector_store_ids", "v"), ("container", "cntr"), ("file_ids", "g")},
        ),
        (
            "openai-responses",
            {"prompt": {"id": "p", "variables": {"x": {"type": "input_file", "file_id": "f"}}}},
            {("file_id", "f")},
        ),
        (
            "openai-responses",
            {
                "tools": [{"environment": {"type": "container_reference", "container_id": "a"}}],
                "input": [
                    {"type": "code_interpreter_call", "id": "ci", "container_id": "b"},
                    {"type": "shell_call", "environment": {"container_id": "c"}},
                ],
            },
            {("container_id", "a"), (COPIED, "b"), (COPIED, "c")},
        ),
        (
            "openai-chat",
            {"messages": [message({"type": "file", "file": {"file_id": "f"}})]},
            {("file_id", "f")},
        ),
        ("anthropic", {"container": "c"}, {("container", "c")}),
        ("anthropic", {"container": {"id": "c", "skills": []}}, {("container", "c")}),
        (
            "anthropic",
            {"messages": [message({"type": "document", "source": FILE})]},
            {("file_id", "file-a")},
        ),
        (
            "anthropic",
            {"messages": [message({"type": "tool_result", "content": [{"source": FILE}]})]},
            {("file_id", "file-a")},
        ),
    ],
)
def test_each_is_found(dialect: str, body: dict[str, Any], found: set[tuple[str, str]]) -> None:
    read = JsonObject.read(json.dumps(body).encode())
    assert set(stored_references(dialect, read)) == found


@pytest.mark.parametrize("dialect", ["openai-chat", "anthropic", "openai-responses"])
def test_escapes_hide_nothing(dialect: str) -> None:
    body = b'{"messages": [{"content": [{"fil\\u0065_id": "f"}]}]}'
    assert list(stored_references(dialect, JsonObject.read(body))) == [("file_id", "f")]


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("openai-chat", {"messages": [message("a file_id in words")]}),
        (
            "openai-chat",
            {"tools": [{"function": {"parameters": {"properties": {"file_id": {}}}}}]},
        ),
        (
            "openai-chat",
            {"tools": [{"function": {"parameters": {"default": {"file_id": "x"}}}}]},
        ),
        (
            "anthropic",
            {"messages": [message({"type": "tool_use", "input": {"file_id": "mine"}})]},
        ),
        (
            "anthropic",
            {"messages": [message({"type": "code_execution_tool_result", "content": FILE})]},
        ),
        (
            "openai-responses",
            {
                "previous_response_id": None,
                "input": [
                    {"role": "user", "id": "m", "content": "hi"},
                    {"type": "message", "id": "msg_1", "role": "assistant", "content": []},
                    {"type": "output_text", "annotations": [FILE]},
                    {"type": "file_search_call", "id": "fs", "results": [FILE]},
                ],
                "metadata": {"file_id": "x"},
            },
        ),
        ("ollama", {"file_id": "x"}),
        ("openai-chat", {"messages": [message("x")], "guided_json": {"default": FILE}}),
        ("openai-chat", {"messages": [message("x")], "chat_template_kwargs": {"file_id": "x"}}),
        ("openai-chat", {"messages": [message("x")], "metadata": {"file_id": "x"}}),
        (
            "openai-chat",
            {"response_format": {"json_schema": {"schema": {"default": {"file_id": "x"}}}}},
        ),
        (
            "openai-responses",
            {"prompt": {"id": "p", "variables": {"file_id": "x", "container": "box"}}},
        ),
        ("anthropic", {"tools": [{"input_schema": {"properties": {"file_id": {}}}}]}),
    ],
)
def test_words_of_the_client_and_of_answers_are_none(dialect: str, body: dict[str, Any]) -> None:
    assert list(stored_references(dialect, JsonObject.read(json.dumps(body).encode()))) == []


@pytest.mark.parametrize("field", ["container", "container_id", "file_id"])
def test_a_list_is_none_where_one_id_belongs(field: str) -> None:
    body = json.dumps({"tools": [{"type": "code_interpreter", field: ["a", "b"]}]}).encode()
    assert list(stored_references("openai-responses", JsonObject.read(body))) == []


def test_nobody_pays_for_those_that_are_not_asked_for() -> None:
    body = json.dumps({"tools": [{"vector_store_ids": ["a"] * 1000}]}).encode()
    found = stored_references("openai-responses", JsonObject.read(body))
    assert next(found) == ("vector_store_ids", "a") and len(list(found)) == 999
