"""/api/generate: one turn of a chat, told as `response`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.ollama import load
from headrace.protocol.dialects.ollama.generate import GenerateReplies, OllamaGenerateClient
from headrace.protocol.dialects.ollama.request.read_generate import beyond_chat
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.event import ReplyFailure
from headrace.protocol.neutral.part import Media, Text, Thinking
from tests.protocol.neutral.streams import assert_grammar, read_at_every_cut

CLIENT = OllamaGenerateClient(created_at="2026-11-22T10:00:00Z")
REPLIES = GenerateReplies()
CALL = ChatCall(dialect="ollama", model="m", messages=(), stream=True)
PNG = "iVBORw0KGgoAAAANSUhEUg=="
HEAD = {"model": "m", "created_at": "2026-11-22T10:00:00Z"}
LINES: list[dict[str, Any]] = [
    {**HEAD, "response": "", "thinking": "Hm", "done": False},
    {**HEAD, "response": "Zü", "done": False},
    {**HEAD, "response": "rich", "done": False},
    {**HEAD, "response": "", "done": True, "done_reason": "stop", "context": [1, 2],
     "total_duration": 9, "load_duration": 1, "prompt_eval_count": 26, "prompt_eval_duration": 2,
     "eval_count": 5, "eval_duration": 3},
]  # fmt: skip


def stream(lines: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in lines)


def call(**fields: Any) -> ChatCall:
    return CLIENT.read_call(json.dumps({"model": "m", **fields}).encode(), "/api/generate", {})


def test_a_prompt_is_a_turn() -> None:
    read = call(
        prompt="Hi", system="Be short.", images=[PNG], options={"temperature": 0.5, "mirostat": 1},
        format="json", think=True, keep_alive="5m",
    )  # fmt: skip
    assert read.instructions == (Text(text="Be short."),)
    (turn,) = read.messages
    assert turn.role == "user"
    assert turn.parts == (Media(kind="image", mime="image/png", data=PNG), Text(text="Hi"))
    assert read.stream and read.stream_usage and read.temperature == 0.5
    assert read.output is not None and read.output.kind == "json"
    assert read.extra == {"keep_alive": "5m", "options": {"mirostat": 1}}
    assert beyond_chat(read) is None and load.load_reason(read) is None
    assert not call(prompt="Hi", stream=False).stream


@pytest.mark.parametrize("fields", [{}, {"prompt": ""}, {"system": "Be short."}])
def test_without_a_prompt_it_is_loaded(fields: dict[str, Any]) -> None:
    read = call(**fields)
    assert load.load_reason(read) == "load"
    told = json.loads(CLIENT.write_reply(load.load_reply(read), read))
    assert told == {**HEAD, "response": "", "done": True, "done_reason": "load"}


@pytest.mark.parametrize(
    "fields", [{"suffix": "z"}, {"raw": True}, {"template": "{{ .Prompt }}"}, {"context": [1]}]
)
def test_what_no_chat_can_be_told(fields: dict[str, Any]) -> None:
    why = beyond_chat(call(prompt="Hi", **fields))
    assert why is not None and why[0] in fields
    empty: dict[str, Any] = {name: type(value)() for name, value in fields.items()}
    assert beyond_chat(call(prompt="Hi", **empty)) is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"prompt": 7}, "prompt"), ({"prompt": "a", "images": ["http://x"]}, "images[0]"),
     ({"prompt": "a", "system": []}, "system")],
)  # fmt: skip
def test_bad_fields_are_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        call(**fields)
    assert caught.value.param == param


def test_a_stream_at_every_cut_and_written_again() -> None:
    events = read_at_every_cut(lambda: REPLIES.stream_reader(CALL), stream(LINES))
    assert_grammar(events)
    reply = collected(REPLIES.name, events)
    assert reply.choices[0].parts == (Thinking(text="Hm"), Text(text="Zürich"))
    assert reply.usage is not None and reply.usage.output_tokens == 5
    writer = CLIENT.stream_writer(CALL)
    written = b"".join(writer.write(one) for one in events).splitlines()
    assert [json.loads(one) for one in written] == LINES
    assert writer.keep_alive() == b""


def test_a_whole_reply_and_written_again() -> None:
    whole = {**LINES[-1], "response": "Zürich", "thinking": "Hm"}
    reply = REPLIES.read_reply(json.dumps(whole).encode())
    assert reply.choices[0].parts == (Thinking(text="Hm"), Text(text="Zürich"))
    assert json.loads(CLIENT.write_reply(reply, CALL)) == whole


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (stream(LINES[:2]), "network"),
        (stream(LINES[:2]) + b'{"model": "m", "resp', "damaged"),
        (stream(LINES[:2]) + b"[1]\n", "damaged"),
        (stream([*LINES[:2], {"error": "an error was encountered"}]), "server"),
    ],
)
def test_streams_that_end_badly(body: bytes, kind: str) -> None:
    events = read_at_every_cut(lambda: REPLIES.stream_reader(CALL), body)
    assert isinstance(events[-1], ReplyFailure) and events[-1].failure.kind == kind
    told = CLIENT.stream_writer(CALL).write(events[-1])
    assert "error" in json.loads(told)
