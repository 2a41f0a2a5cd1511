"""What is wrong with a body is said in the same words, whatever the dialect."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.errors import RequestError
from headrace.protocol.body_json import decode_object
from headrace.protocol.dialects.anthropic.request.read_call import read_call as anthropic_call
from headrace.protocol.dialects.ollama.request.read_call import read_call as ollama_call
from headrace.protocol.dialects.ollama.request.read_generate import read_generate
from headrace.protocol.dialects.openai_chat.embeddings import read_embedding_call
from headrace.protocol.dialects.openai_chat.request.read_call import read_call as chat_call
from headrace.protocol.dialects.openai_completions.read_call import read_call as completion_call
from headrace.protocol.dialects.openai_responses.request.read_call import (
    read_call as responses_call,
)
from headrace.protocol.json_object import JsonObject

READERS: dict[str, Callable[[bytes], object]] = {
    "decode_object": decode_object,
    "chat": chat_call,
    "completions": completion_call,
    "embeddings": read_embedding_call,
    "responses": responses_call,
    "anthropic": lambda body: anthropic_call(body, {}, counting=False),
    "ollama chat": ollama_call,
    "ollama generate": read_generate,
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize(
    ("body", "problem", "code"),
    [
        (b"", "the body is not valid JSON: it is empty", "invalid_json"),
        (b"{", "the body is not valid JSON: ", "invalid_json"),
        (b"[1]", "the body must be a JSON object, not ", "invalid_json"),
        (b'{"a": "\\ud800"}', r"\\ud800 \(byte 7\) is half of a surrogate pair", "invalid_json"),
        (b'{"a": "\\ud83d\\ude00 \\udc00 x"}', r"\\udc00 \(byte 20\) is half", "invalid_json"),
        (
            b'{"a": ' + b"[" * 70_000 + b"]" * 70_000 + b"}",
            "arrays and objects",
            "body_too_complex",
        ),
    ],
    ids=["empty", "cut", "list", "high half", "low half", "deep"],
)
def test_every_dialect_says_what_is_wrong_with_a_body(
    reader: Callable[[bytes], object], body: bytes, problem: str, code: str
) -> None:
    with pytest.raises(RequestError, match=problem) as caught:
        reader(body)
    assert caught.value.code == code


@pytest.mark.parametrize("escape", ["ud800", "udfff"])
@pytest.mark.parametrize("value", ['"\\{}"', '[{{"content": "\\{}"}}]'])
def test_a_member_that_is_read_later_says_the_same(escape: str, value: str) -> None:
    body = f'{{"model": {value.format(escape)}}}'.encode()
    with pytest.raises(RequestError, match=rf"{escape} .* is half of a surrogate pair"):
        JsonObject.read(body).decoded("model")
    if value.startswith('"'):
        with pytest.raises(RequestError, match=rf"{escape} .* is half of a surrogate pair"):
            JsonObject.read(body).text("model")
