"""/apply-template: the prompt as text is the one that is generated from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.text import ChatTemplate, Tokenizer
from tests.server.chat.test_chat import HELLO
from tests.server.conftest import MODEL, Running
from tests.server.mock_engine import MockEngine, says

Start = Callable[..., Running]
TEXT = "<|im_start|>user\nx<|im_end|>\n"
TURN = "<|im_start|>assistant\n"


def applied(server: Running, **fields: Any) -> str:
    reply = server.post("/apply-template", {"messages": HELLO, **fields})
    assert reply.status_code == 200, reply.text
    body = reply.json()
    assert list(body) == ["prompt"]
    return str(body["prompt"])


@pytest.fixture
def server(start: Start) -> Running:
    return start(MockEngine(says("x")))


def test_the_text(server: Running) -> None:
    assert applied(server, model=MODEL) == TEXT + TURN
    assert applied(server, add_generation_prompt=False) == TEXT
    assert applied(server, continue_final_message=True) == TEXT.removesuffix("<|im_end|>\n")


@pytest.mark.parametrize(
    "fields",
    [{}, {"add_generation_prompt": False}, {"continue_final_message": True}],
)
def test_its_tokens_are_those_of_the_conversation(server: Running, fields: dict[str, Any]) -> None:
    text = applied(server, **fields)
    asked = {"prompt": text, "add_special_tokens": False}
    as_text = server.post("/tokenize", asked).json()["tokens"]
    assert as_text == server.post("/tokenize", {"messages": HELLO, **fields}).json()["tokens"]
    server.chat(**fields)
    assert isinstance(server.engine, MockEngine)
    assert server.engine.submitted[-1].prompt_token_ids == as_text


def test_what_a_user_wrote_is_there_as_written(server: Running) -> None:
    written = [{"role": "user", "content": "<|im_end|>\nwater 水"}]
    assert "<|im_end|>\nwater 水<|im_end|>" in applied(server, messages=written)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"chat_template": "x"}, "chat_template"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        (
            {"add_generation_prompt": True, "continue_final_message": True},
            "continue_final_message",
        ),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ],
)
def test_what_a_chat_refuses_is_refused_here(
    server: Running, fields: dict[str, Any], param: str
) -> None:
    body = {"messages": HELLO, **fields}
    errors = [server.post(path, body) for path in ("/apply-template", "/v1/chat/completions")]
    assert [error.status_code for error in errors] == [400, 400]
    assert [error.json()["error"]["param"] for error in errors] == [param, param]


def test_unknown_fields_and_models(server: Running) -> None:
    reply = server.post("/apply-template", {"messages": HELLO, "add_special": True})
    assert reply.headers["x-ignored-params"] == "add_special"
    assert server.post("/apply-template", {"messages": HELLO, "model": "z"}).status_code == 404


def test_nothing_is_generated(server: Running) -> None:
    applied(server)
    assert isinstance(server.engine, MockEngine)
    assert server.engine.submitted == []


CALLS = (
    "{% for call in messages[-1].tool_calls %}{{ call.function.arguments | tojson }}"
    "{% if 'refuse' in call.function.arguments %}"
    "{{ raise_exception(call.function.arguments.refuse) }}{% endif %}{% endfor %}"
)


@pytest.mark.parametrize("path", ["/apply-template", "/tokenize", "/v1/chat/completions"])
def test_half_of_a_surrogate_pair_in_arguments(
    start: Start, path: str, tokenizer: Tokenizer
) -> None:
    """The JSON inside of a text may hold what the body may not; no reply can."""
    template = ChatTemplate.for_tokenizer(CALLS, tokenizer)
    server = start(MockEngine(says("x")), template=template)

    def answered(arguments: str) -> Any:
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
        messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]
        return server.post(path, {"messages": messages})

    reply = answered('{"a": "x\\ud800y"}')
    assert reply.status_code == 200, reply.text
    if path == "/apply-template":
        assert reply.json()["prompt"] == '{"a": "x\ufffdy"}'
    refused = answered('{"refuse": "x\\udc00y"}')
    assert (refused.status_code, refused.json()["error"]["message"]) == (400, "x?y")
