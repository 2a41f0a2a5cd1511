"""Events made of a template are, byte by byte, those that encoding the whole chunk gives."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol import sse
from headrace.protocol.openai.chat import (
    ChatCompletionChunk,
    ChatCompletionRequest,
    ChunkChoice,
    Delta,
    Message,
)
from headrace.protocol.openai.completions import Completion, CompletionChoice, CompletionRequest
from headrace.server.generation.pieces import Piece
from headrace.server.prompts.prompt import Prompt
from headrace.server.replies.chat_reply import ChatReply
from headrace.server.replies.completion_reply import CompletionReply
from headrace.server.replies.reply import Head, UsageEvents

# Quotes, line ends of all kinds and what looks like the place the text goes to.
NASTY = st.text() | st.sampled_from(
    ['"text":""', '"content":""', "\\", '"', "\x85 \u2028\u2029", "水"]
)
NO_TABLE: Any = None  # log probabilities alone look at it


def whole(chunk: msgspec.Struct) -> bytes:
    return sse.data_event(msgspec.json.encode(chunk))


@given(texts=st.lists(NASTY.filter(bool), min_size=1, max_size=4), model=NASTY, usage=st.booleans())
def test_chat(texts: list[str], model: str, usage: bool) -> None:
    request = ChatCompletionRequest(messages=[Message(role="user", content="x")], n=2)
    head = Head("chatcmpl-1", 1700000000, model, "fp_1")
    reply = ChatReply(head, request, [1, 2], NO_TABLE, UsageEvents(last=usage))
    list(reply.events(0, Piece("begun", [1])))
    list(reply.events(1, Piece("begun", [1])))
    for number, text in enumerate(texts):
        index = number % 2
        chunk = ChatCompletionChunk(
            id=head.id,
            created=head.created_s,
            model=model,
            system_fingerprint="fp_1",
            choices=[ChunkChoice(index=index, delta=Delta(content=text))],
            usage=None if usage else msgspec.UNSET,
        )
        assert list(reply.events(index, Piece(text, [1]))) == [whole(chunk)]


@given(texts=st.lists(NASTY.filter(bool), min_size=1, max_size=4), model=NASTY, usage=st.booleans())
def test_completion(texts: list[str], model: str, usage: bool) -> None:
    request = CompletionRequest(prompt="x", n=2)
    head = Head("cmpl-1", 1700000000, model, "fp_1")
    prompts = [Prompt([1, 2], "prompt")]
    reply = CompletionReply(head, request, prompts, NO_TABLE, UsageEvents(last=usage))
    for number, text in enumerate(texts):
        index = number % 2
        chunk = Completion(
            id=head.id,
            created=head.created_s,
            model=model,
            system_fingerprint="fp_1",
            choices=[CompletionChoice(index=index, text=text)],
            usage=None if usage else msgspec.UNSET,
        )
        assert list(reply.events(index, Piece(text, [1]))) == [whole(chunk)]
        assert list(reply.events(index, Piece("", [1]))) == []


def test_usage_so_far_is_in_every_event_that_asks_for_it() -> None:
    request = CompletionRequest(prompt="x")
    head = Head("cmpl-1", 1700000000, "m", "fp_1")
    prompts = [Prompt([1, 2], "prompt")]
    reply = CompletionReply(head, request, prompts, NO_TABLE, UsageEvents(every=True, last=True))
    counts = []
    for _ in range(3):
        (event,) = reply.events(0, Piece("a", [1]))
        body = msgspec.json.decode(event.removeprefix(b"data: "))
        counts.append(body["usage"]["completion_tokens"])
    assert counts == [1, 2, 3]
