"""Streams of completions that no recording has: probabilities, several choices, damage."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.protocol.dialects.openai_completions import CLIENT, REPLIES
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.event import Event, ReplyFailure
from headrace.protocol.sse import data_event
from tests.protocol.neutral.streams import assert_grammar, read_at_every_cut

CALL = ChatCall(dialect=CLIENT.name, model="m", messages=(), stream=True)
COLUMNS = [
    {"tokens": ["Hé"], "token_logprobs": [-0.5], "text_offset": [0],
     "top_logprobs": [{"Hé": -0.5, "Ho": -1.25}]},
    {"tokens": ["llo", "!"], "token_logprobs": [-0.1, -2.0], "text_offset": [2, 5],
     "top_logprobs": [{"llo": -0.1}, {"!": -2.0}]},
]  # fmt: skip


def event(*choices: dict[str, Any], **more: Any) -> bytes:
    value = {"id": "cmpl-1", "object": "text_completion", "created": 7, "model": "m",
             "choices": list(choices), **more}  # fmt: skip
    return data_event(json.dumps(value).encode())


def choice(index: int, text: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"text": text, "index": index, "logprobs": None, "finish_reason": finish, **more}


def read(*pieces: bytes) -> list[Event]:
    found = read_at_every_cut(lambda: REPLIES.stream_reader(CALL), b"".join(pieces))
    assert_grammar(found)
    return found


def test_columns_survive_being_kept_and_told_again() -> None:
    events = read(
        event(choice(0, "Hé", logprobs=COLUMNS[0])),
        event(choice(0, "llo!", "length", logprobs=COLUMNS[1])),
        b"data: [DONE]\n\n",
    )
    writer = CLIENT.stream_writer(CALL)
    told = [
        json.loads(line[6:])["choices"][0]["logprobs"]
        for line in b"".join(map(writer.write, events)).decode().split("\n\n")
        if line.startswith("data: {")
    ]
    assert told == [*COLUMNS, None]
    whole = json.loads(CLIENT.write_reply(collected(REPLIES.name, events), CALL))
    assert whole["choices"][0]["logprobs"] == {
        name: COLUMNS[0][name] + COLUMNS[1][name]  # type: ignore[operator]
        for name in COLUMNS[0]
    }


def test_choices_side_by_side() -> None:
    events = read(
        event(choice(1, "b")), event(choice(0, "a")), event(choice(1, "c", "stop")),
        event(choice(0, "", "length")),
        event(usage={"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}),
    )  # fmt: skip
    reply = collected(REPLIES.name, events)
    assert [(one.index, one.finish) for one in reply.choices] == [(0, "length"), (1, "stop")]
    assert reply.usage is not None and reply.usage.completion_tokens == 3


@pytest.mark.parametrize(
    ("pieces", "kind"),
    [
        ((event(choice(0, "half")),), "network"),
        ((event(choice(0, "half")), b'data: {"id": "cm'), "network"),
        ((event(choice(0, "half")), b"data: {]\n\n"), "damaged"),
        ((b"data: [DONE]\n\n",), "damaged"),
        ((event(choice(0, "x")), event(error={"message": "no", "code": 503})), "overloaded"),
    ],
)  # fmt: skip
def test_streams_that_end_badly(pieces: tuple[bytes, ...], kind: str) -> None:
    last = read(*pieces)[-1]
    assert isinstance(last, ReplyFailure) and last.failure.kind == kind


def test_no_usage_unless_it_is_asked_for() -> None:
    events = read(
        event(choice(0, "a", "stop")),
        event(usage={"prompt_tokens": 1, "completion_tokens": 1}),
        b"data: [DONE]\n\n",
    )
    plain = b"".join(map(CLIENT.stream_writer(CALL).write, events))
    assert b"usage" not in plain
    asks = ChatCall(dialect=CLIENT.name, model="m", messages=(), stream=True, stream_usage=True)
    told = b"".join(map(CLIENT.stream_writer(asks).write, events))
    assert told.count(b'"usage":{"prompt_tokens":1') == 1 and told.count(b'"usage":null') == 2
