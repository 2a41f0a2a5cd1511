"""What a reply tells of its prompt (echo, prompt_logprobs), and what is kept of a long one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from headrace.engine.messages import Output, Submit
from headrace.server.replies.echo import echo_of
from headrace.text import Tokenizer, load_tokenizer
from headrace.weights.checkpoint import TokenizerData
from tests.server.chat.test_chat import HELLO, HELLO_IDS
from tests.server.conftest import MODEL, Running, events_of
from tests.server.connections.test_wire import error_of
from tests.server.mock_engine import (
    MAX_MODEL_LEN,
    MockEngine,
    output,
    prompt_logprobs,
    says,
)
from tests.server.replies.test_choices import streamed
from tests.server.routes.test_completions import joined
from tests.tiny import BOS, EOS, gguf_tokenizer

Start = Callable[..., Running]
CHAT = "/v1/chat/completions"


@pytest.mark.parametrize("n", [1, 2])
def test_echo_begins_the_text_of_every_choice_with_its_prompt(start: Start, n: int) -> None:
    server = start(MockEngine(says("!")))
    body = {"prompt": ["größe", "b"], "echo": True, "n": n}
    expected = ["größe!"] * n + ["b!"] * n
    assert [one["text"] for one in server.complete(**body)["choices"]] == expected
    events = server.stream_completion(**body)
    assert [joined(events, index) for index in range(2 * n)] == expected


def test_echo_of_token_ids_is_their_text(start: Start) -> None:
    server = start(MockEngine(says("!")))
    ids = [BOS, *"é".encode(), EOS]
    assert server.complete(prompt=ids, echo=True)["choices"][0]["text"] == "é!"
    shown = server.complete(prompt=ids, echo=True, skip_special_tokens=False)
    assert shown["choices"][0]["text"] == "<|bos|>é<|eos|>!"


def test_echo_of_a_character_that_the_output_completes(start: Start) -> None:
    head, *tail = "水".encode()
    server = start(MockEngine(says([*tail, *b"!"])))
    choice = server.complete(prompt=[*b"a", head], echo=True, logprobs=0)["choices"][0]
    assert choice["text"] == "a水!"
    assert choice["logprobs"]["text_offset"] == [0, 1, 1, 1, 2, 3]


def test_echo_with_logprobs_has_those_of_the_prompt_first(start: Start) -> None:
    server = start(MockEngine(says("c")))
    columns = server.complete(prompt="aé", echo=True, logprobs=1)["choices"][0]["logprobs"]
    ids = [*"aéc".encode(), EOS]
    assert columns["tokens"] == ["a", "bytes:\\xc3", "bytes:\\xa9", "c", "<|eos|>"]
    assert columns["token_logprobs"] == [None, *(-one / 1000 for one in ids[1:])]
    assert columns["text_offset"] == [0, 1, 1, 2, 3]
    assert columns["top_logprobs"][0] is None
    assert columns["top_logprobs"][3] == {"d": -9999.0, "c": -0.099}
    assert [len(one) for one in columns["top_logprobs"][1:]] == [2] * 4


@pytest.mark.parametrize("logprobs", [None, 0, 2])
@pytest.mark.parametrize("streams", [False, True])
def test_a_prompt_can_be_read_only(start: Start, logprobs: int | None, streams: bool) -> None:
    """What scorers of texts ask for: echo, max_tokens 0, logprobs."""
    engine = MockEngine(says("never said"))
    server = start(engine)
    body = {"prompt": "abc", "echo": True, "max_tokens": 0, "logprobs": logprobs}
    if streams:
        (event,) = server.stream_completion(**body)
        choice = event["choices"][0]
    else:
        reply = server.complete(**body)
        assert reply["usage"]["completion_tokens"] == 0
        choice = reply["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("abc", "length")
    assert engine.submitted[0].params.max_tokens == 0
    if logprobs is None:
        assert choice["logprobs"] is None
    else:
        assert choice["logprobs"]["tokens"] == ["a", "b", "c"]
        assert choice["logprobs"]["token_logprobs"] == [None, -0.098, -0.099]
        assert choice["logprobs"]["text_offset"] == [0, 1, 2]


def test_a_prompt_as_long_as_the_context_can_be_read(start: Start) -> None:
    server = start(MockEngine(says("x")))
    body = {"prompt": "y" * MAX_MODEL_LEN, "echo": True, "logprobs": 0}
    assert len(server.complete(**body, max_tokens=0)["choices"][0]["text"]) == MAX_MODEL_LEN
    error = error_of(server.post("/v1/completions", {**body, "max_tokens": 1}), 400)
    assert error["code"] == "context_length_exceeded"


def test_echo_with_logprobs_of_the_openai_package(start: Start) -> None:
    server = start(MockEngine(says("c")))
    reply = server.openai.completions.create(
        model=MODEL, prompt="ab", echo=True, logprobs=1, max_tokens=1
    )
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == ["a", "b", "c"]
    assert logprobs.token_logprobs is not None
    assert logprobs.token_logprobs[0] is None


@pytest.mark.parametrize(
    ("written", "ids", "offsets"),
    [
        ("ab", [BOS, *b"ab"], (0, 0, 1)),
        ("<|bos|>ab", [BOS, *b"ab"], (0, 7, 8)),
        ("<|bos|>ab", [BOS, BOS, *b"ab"], (0, 7, 7, 8)),
        ("a<|eos|>b", [*b"a", EOS, *b"b"], (0, 1, 8)),
        ("水", [*"水".encode()], (0, 0, 0)),
        ("", [BOS], (0,)),
        # A tokenizer that normalizes: the text as it was written, offsets within it.
        ("ab", [*b"abcd"], (0, 1, 2, 2)),
    ],
)
def test_a_written_text_is_echoed_as_it_was_written(
    tokenizer: Tokenizer, written: str, ids: list[int], offsets: tuple[int, ...]
) -> None:
    """Whoever cuts the prompt's length off the text gets the answer."""
    for skip in (False, True):
        echo = echo_of(ids, written, tokenizer, skip_special_tokens=skip)
        assert echo == (written, offsets)


def test_the_bos_that_the_tokenizer_adds_is_not_in_the_text(start: Start) -> None:
    data = TokenizerData(kind="gguf", gguf={**gguf_tokenizer(), "add_bos_token": True})
    server = start(MockEngine(says("c")), tokenizer=load_tokenizer(data))
    choice = server.complete(prompt="ab", echo=True, logprobs=0, max_tokens=1)["choices"][0]
    assert choice["text"] == "abc"
    assert choice["logprobs"]["tokens"] == ["<|bos|>", "a", "b", "c"]
    assert choice["logprobs"]["text_offset"] == [0, 0, 1, 2]


def entry(token_id: int, text: str, logprob: float, rank: int) -> dict[str, Any]:
    return {str(token_id): {"logprob": logprob, "rank": rank, "decoded_token": text}}


def test_prompt_logprobs_of_a_completion_are_in_vllms_shape(start: Start) -> None:
    server = start(MockEngine(says("x")))
    choice = server.complete(prompt="ab", prompt_logprobs=2)["choices"][0]
    assert choice["prompt_logprobs"] == [
        None,
        entry(98, "b", -0.098, 3) | entry(99, "c", 0.0, 1) | entry(100, "d", -9999.0, 2),
    ]
    assert next(iter(choice["prompt_logprobs"][1])) == "98", "the prompt's own token comes first"
    assert choice["logprobs"] is None
    assert "prompt_logprobs" not in server.complete(prompt="ab")["choices"][0]
    none = server.complete(prompt="ab", prompt_logprobs=0)["choices"][0]
    assert none["prompt_logprobs"] == [None, entry(98, "b", -0.098, 1)]


def test_prompt_logprobs_of_a_conversation_are_beside_the_choices(start: Start) -> None:
    server = start(MockEngine(says("x")))
    reply = server.chat(prompt_logprobs=0, n=2)
    assert len(reply["prompt_logprobs"]) == len(HELLO_IDS)
    assert reply["prompt_logprobs"][0] is None
    assert list(reply["prompt_logprobs"][1]) == [str(HELLO_IDS[1])]
    assert "prompt_logprobs" not in reply["choices"][0]
    body = {"messages": HELLO, "prompt_logprobs": 0, "n": 2, "stream": True}
    first, *rest = events_of(server.post(CHAT, body))
    assert first["prompt_logprobs"] == reply["prompt_logprobs"]
    assert all("prompt_logprobs" not in event for event in rest)


@pytest.mark.parametrize("streams", [False, True])
def test_choices_share_the_logprobs_of_their_prompt(start: Start, streams: bool) -> None:
    """The first of a prompt asks for them; the others wait for it and have them too."""

    async def reply(submit: Submit) -> AsyncIterator[Output]:
        late = submit.params.choice == 0
        await asyncio.sleep(0.02 if late else 0)
        yield output(submit, [])
        yield output(submit, [*b"x"], prompt_logprobs=prompt_logprobs(submit))
        await asyncio.sleep(0)
        yield output(submit, [*b"y", EOS], "stop")

    engine = MockEngine(reply)
    server = start(engine)
    body = {"prompt": ["ab", "cd"], "n": 2, "echo": True, "logprobs": 0, "prompt_logprobs": 1}
    asked = {}
    if streams:
        events = server.stream_completion(**body)
        assert [streamed(events, index) for index in range(4)] == ["abxy"] * 2 + ["cdxy"] * 2
        firsts = {}
        for event in events:
            for choice in event["choices"]:
                firsts.setdefault(choice["index"], choice)
        choices = [firsts[index] for index in range(4)]
        assert sum("prompt_logprobs" in c for event in events for c in event["choices"]) == 4
    else:
        choices = server.complete(**body)["choices"]
    for choice, token in zip(choices, [98, 98, 100, 100], strict=True):
        assert next(iter(choice["prompt_logprobs"][1])) == str(token)
        assert choice["logprobs"]["token_logprobs"][:2] == [None, -token / 1000]
    for submit in engine.submitted:
        asked[submit.params.choice, bytes(submit.prompt_token_ids)] = submit.params.prompt_logprobs
    assert asked == {(0, b"ab"): 1, (1, b"ab"): None, (0, b"cd"): 1, (1, b"cd"): None}


def test_more_rivals_of_the_prompt_than_of_the_output(start: Start) -> None:
    engine = MockEngine(says("c"))
    choice = start(engine).complete(prompt="ab", echo=True, logprobs=1, prompt_logprobs=3)
    choice = choice["choices"][0]
    assert engine.submitted[0].params.prompt_logprobs == 3
    assert engine.submitted[0].params.logprobs == 1
    assert len(choice["prompt_logprobs"][1]) == 4
    assert len(choice["logprobs"]["top_logprobs"][1]) == 2
    fewer = start(engine).complete(prompt="ab", echo=True, logprobs=2, prompt_logprobs=0)
    assert len(fewer["choices"][0]["prompt_logprobs"][1]) == 1
    assert len(fewer["choices"][0]["logprobs"]["top_logprobs"][1]) == 3


@pytest.mark.parametrize("streams", [False, True])
def test_a_request_that_ended_before_its_prompt_was_read(start: Start, streams: bool) -> None:
    async def reply(submit: Submit) -> AsyncIterator[Output]:
        yield output(submit, [], "timeout")

    server = start(MockEngine(reply))
    body = {"prompt": "ab", "n": 2, "echo": True, "logprobs": 0, "prompt_logprobs": 0}
    if streams:
        events = server.stream_completion(**body)
        choices = [event["choices"][0] for event in events]
    else:
        choices = server.complete(**body)["choices"]
    assert len(choices) == 2
    for choice in choices:
        assert (choice["text"], choice["finish_reason"]) == ("ab", "timeout")
        assert choice["prompt_logprobs"] is None
        assert choice["logprobs"]["token_logprobs"] == [None, None]


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"truncate_prompt_tokens": 3}, 3),
        ({"truncate_prompt_tokens": 1}, 1),
        ({"truncate_prompt_tokens": 1000, "prompt": "ab"}, 2),
        ({"truncate_prompt_tokens": -1}, MAX_MODEL_LEN - 16),
        ({"truncate_prompt_tokens": -1, "max_tokens": 100}, MAX_MODEL_LEN - 100),
        ({"truncate_prompt_tokens": -1, "max_tokens": 0, "echo": True}, MAX_MODEL_LEN),
        ({"truncate_prompt_tokens": -1, "prompt": "ab"}, 2),
    ],
)
def test_the_last_tokens_of_a_prompt_are_kept(
    start: Start, fields: dict[str, Any], kept: int
) -> None:
    engine = MockEngine(says("x"))
    text = "".join(chr(33 + i % 90) for i in range(400))
    reply = start(engine).complete(**{"prompt": text, **fields})
    given = fields.get("prompt", text)
    assert bytes(engine.submitted[0].prompt_token_ids).decode() == given[-kept:]
    assert reply["usage"]["prompt_tokens"] == kept
    if fields.get("echo"):
        assert reply["choices"][0]["text"] == given[-kept:]


def test_a_conversation_is_cut_at_its_beginning_too(start: Start) -> None:
    engine = MockEngine(says("x"))
    server = start(engine)
    server.chat(truncate_prompt_tokens=5)
    assert engine.submitted[0].prompt_token_ids == HELLO_IDS[-5:]
    long = [{"role": "user", "content": "y" * 300}]
    assert error_of(server.post(CHAT, {"messages": long}), 400)["param"] == "messages"
    for fields, length in (({}, MAX_MODEL_LEN - 1), ({"max_tokens": 56}, MAX_MODEL_LEN - 56)):
        reply = server.post(CHAT, {"messages": long, "truncate_prompt_tokens": -1, **fields})
        assert reply.status_code == 200
        assert len(engine.submitted[-1].prompt_token_ids) == length


def test_what_is_kept_still_has_to_fit(start: Start) -> None:
    server = start(MockEngine(says("x")))
    for fields in (
        {"truncate_prompt_tokens": MAX_MODEL_LEN},
        {"truncate_prompt_tokens": -1, "max_tokens": MAX_MODEL_LEN},
    ):
        reply = server.post("/v1/completions", {"prompt": "y" * 400, **fields})
        assert error_of(reply, 400)["code"] == "context_length_exceeded"
