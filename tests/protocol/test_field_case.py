"""Fields in capital letters: refused where they count, passed on where they do not."""

from __future__ import annotations

import pytest

from headrace.errors import RequestError
from headrace.protocol.field_case import check_case
from headrace.protocol.json_object import JsonObject


@pytest.mark.parametrize(
    ("dialect", "body", "param"),
    [
        ("ollama", b'{"Model":"dear"}', "Model"),
        ("ollama", b'{"model":"a","Tools":[]}', "Tools"),
        ("openai-chat", b'{"model":"a","Tools":[]}', "Tools"),
        ("openai-chat", b'{"model":"a","MAX_TOKENS":9}', "MAX_TOKENS"),
        ("openai-chat", '{"model":"a","tool\u017f":[]}'.encode(), "tool\u017f"),
        ("ollama-generate", b'{"model":"a","Options":{"num_predict":9}}', "Options"),
        ("ollama", b'{"options":{"NUM_PREDICT":9}}', "options.NUM_PREDICT"),
        ("ollama", b'{"options":{"num_predict":1,"NUM_PREDICT":9}}', "NUM_PREDICT"),
    ],
)
def test_what_counts_is_written_as_it_is_read(dialect: str, body: bytes, param: str) -> None:
    with pytest.raises(RequestError) as error:
        check_case(dialect, JsonObject.read(body))
    assert error.value.param == param


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("ollama", b'{"model":"A","options":{"num_predict":1,"Mirostat":2},"Seed":1}'),
        ("ollama", b'{"model":"a","options":null}'),
        ("ollama", b'{"model":"a","options":7}'),
        ("openai-chat", b'{"model":"a","topP":1,"X-Mine":{"Tools":1},"options":{"N":1}}'),
        ("openai-chat", b"{}"),
    ],
)
def test_other_names_go_on(dialect: str, body: bytes) -> None:
    check_case(dialect, JsonObject.read(body))
