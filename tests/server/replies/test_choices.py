"""Several answers to one request: n and best_of, whole and streamed, and how they are counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from starlette.types import Message

from headrace.config import ServerConfig
from headrace.engine.messages import Output, Submit, TokenLogprob
from headrace.server.admission.admission import Admission
from headrace.server.replies.event_stream import EventStream
from tests.server.chat.test_chat import HELLO, HELLO_IDS
from tests.server.conftest import MODEL, Running, events_of
from tests.server.connections.test_wire import error_of
from tests.server.mock_engine import MockEngine, output, says
from tests.tiny import EOS

Start = Callable[..., Running]
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
both = pytest.mark.parametrize(
    ("path", "body"),
    [(CHAT, {"messages": HELLO}), (COMPLETIONS, {"prompt": "x"})],
    ids=["chat", "completions"],
)
WORDS = ["zero", "one", "two", "three"]


async def words(submit: Submit) -> AsyncIterator[Output]:
    """Choice i says its number; those in the middle are slower."""
    for byte in WORDS[submit.params.choice].encode():
        await asyncio.sleep(0.001 * (submit.params.choice % 2))
        yield output(submit, [byte], cached_tokens=16 * submit.params.choice + 16)
    yield output(submit, [EOS], "stop")


def texts(reply: Any) -> list[str]:
    return [one["text"] if "text" in one else one["message"]["content"] for one in reply["choices"]]


def streamed(events: list[Any], index: int) -> str:
    return "".join(
        choice["text"] if "text" in choice else choice["delta"].get("content", "")
        for event in events
        for choice in event["choices"]
        if choice["index"] == index
    )


@both
@pytest.mark.parametrize("seed", [None, 7])
def test_n_choices_have_streams_of_their_own(
    start: Start, path: str, body: Any, seed: int | None
) -> None:
    engine = MockEngine(words)
    reply = start(engine).post(path, {**body, "n": 3, "seed": seed}).json()
    assert texts(reply) == WORDS[:3]
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    submits = sorted(engine.submitted, key=lambda submit: submit.params.choice)
    assert [submit.params.choice for submit in submits] == [0, 1, 2]
    assert {submit.params.seed for submit in submits} == {seed}
    assert len({submit.request_id for submit in submits}) == 3
    assert len({tuple(submit.prompt_token_ids) for submit in submits}) == 1


@both
def test_usage_counts_the_prompt_and_what_was_cached_of_it_once(
    start: Start, path: str, body: Any
) -> None:
    reply = start(MockEngine(words)).post(path, {**body, "n": 3}).json()
    prompt_tokens = len(HELLO_IDS) if path == CHAT else 1
    assert reply["usage"] == {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": 4 + 3 + 3 + 3,
        "total_tokens": prompt_tokens + 13,
        # What no choice had to compute: others found what the first one did.
        "prompt_tokens_details": {"cached_tokens": 16},
    }


@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_streamed_conversation_has_a_role_and_an_end_per_choice(start: Start, n: int) -> None:
    server = start(MockEngine(words))
    body = {"messages": HELLO, "n": n, "stream": True, "stream_options": {"include_usage": True}}
    *events, usage = events_of(server.post(CHAT, body))
    for index in range(n):
        own = [c for event in events for c in event["choices"] if c["index"] == index]
        assert own[0]["delta"] == {"role": "assistant", "content": ""}
        assert [one for one in own if "role" in one["delta"]] == own[:1]
        assert own[-1]["finish_reason"] == "stop"
        assert own[-1]["delta"] == {}
        assert [one["finish_reason"] for one in own[:-1]] == [None] * (len(own) - 1)
        assert streamed(events, index) == WORDS[index]
    assert usage["choices"] == []
    whole = server.post(CHAT, {"messages": HELLO, "n": n}).json()
    assert usage["usage"] == whole["usage"]


def test_prompts_times_n_are_numbered_through(start: Start) -> None:
    async def reply(submit: Submit) -> AsyncIterator[Output]:
        said = bytes(submit.prompt_token_ids).upper() + str(submit.params.choice).encode()
        yield output(submit, [*said, EOS], "stop")

    server = start(MockEngine(reply))
    body = {"prompt": ["a", "b"], "n": 2}
    expected = ["A0", "A1", "B0", "B1"]
    assert texts(server.complete(**body)) == expected
    events = events_of(server.post(COMPLETIONS, {**body, "stream": True}))
    assert [streamed(events, index) for index in range(4)] == expected


def test_the_openai_package_reads_several_choices(start: Start) -> None:
    server = start(MockEngine(words))
    messages: Any = HELLO
    chat = server.openai.chat.completions
    whole = chat.create(model=MODEL, messages=messages, n=3)
    assert [one.message.content for one in whole.choices] == WORDS[:3]
    parts = ["", "", ""]
    for chunk in chat.create(model=MODEL, messages=messages, n=3, stream=True):
        parts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert parts == WORDS[:3]
    assert [
        one.text for one in server.openai.completions.create(model=MODEL, prompt="x", n=2).choices
    ] == WORDS[:2]


@both
@pytest.mark.parametrize("stream", [False, True])
def test_one_failing_choice_ends_the_reply_and_cancels_the_others(
    start: Start, path: str, body: Any, stream: bool
) -> None:
    async def reply(submit: Submit) -> AsyncIterator[Output]:
        yield output(submit, [65])
        if submit.params.choice == 1:
            yield Output(submit.request_id, [], finish_reason="error", error="the mock broke")
        await asyncio.sleep(60)

    engine = MockEngine(reply)
    server = start(engine)
    answer = server.post(path, {**body, "n": 3, "stream": stream})
    if stream:
        assert "the mock broke" in answer.text
        assert "[DONE]" not in answer.text
    else:
        assert error_of(answer, 500)["code"] == "generation_failed"
    assert len(engine.cancelled) == 2
    assert server.state.admission.num_queued == server.state.admission.num_running == 0


@both
def test_a_client_that_goes_cancels_all_choices(start: Start, path: str, body: Any) -> None:
    async def reply(submit: Submit) -> AsyncIterator[Output]:
        yield output(submit, [65])
        await asyncio.sleep(60)

    engine = MockEngine(reply)
    server = start(engine)
    with server.client.stream("POST", path, json={**body, "n": 3, "stream": True}) as answer:
        next(answer.iter_lines())
    for _ in range(200):
        if len(engine.cancelled) == 3:
            break
        engine.ended.wait(0.05)
        engine.ended.clear()
    assert len(engine.cancelled) == 3
    admission = server.state.admission
    assert (admission.num_queued, admission.num_running) == (0, 0)


async def test_places_are_given_back_where_a_stream_never_begins() -> None:
    """The client is gone before the first byte: nothing was asked of the engine yet."""
    admission = Admission(4, 100, slots=1, clock=lambda: 0.0)
    ticket = admission.enter(3)
    begun: list[bool] = []

    async def events() -> AsyncGenerator[bytes, None]:
        begun.append(True)
        yield b""

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        raise OSError("the connection is gone")

    stream = EventStream(events(), request_id="a", clock=lambda: 0.0, headers={})
    stream.on_end = ticket.close
    with pytest.raises(OSError, match="gone"):
        await stream({"type": "http"}, receive, send)
    assert not begun
    assert admission.num_queued == 0


LIKELY = {0: [-1.0, -3.0], 1: [-0.5], 2: [-1.0, -1.0, -1.0], 3: [-0.5], 4: []}
"""Log probabilities of each candidate's tokens; the means are -2, -0.5, -1, -0.5, none."""


async def ranked(submit: Submit) -> AsyncIterator[Output]:
    choice, logprobs = submit.params.choice, LIKELY[submit.params.choice]
    assert submit.params.logprobs is not None
    ids = [97 + choice] * len(logprobs)
    told = [TokenLogprob(one, value, 1, []) for one, value in zip(ids, logprobs, strict=True)]
    yield Output(submit.request_id, ids, told, finish_reason="length")


def test_best_of_returns_the_likeliest_first_and_counts_all(start: Start) -> None:
    engine = MockEngine(ranked)
    reply = start(engine).complete(n=3, best_of=5)
    assert texts(reply) == ["b", "d", "ccc"]
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    assert reply["usage"]["completion_tokens"] == 2 + 1 + 3 + 1
    assert reply["choices"][0]["logprobs"] is None, "they were not asked for"
    assert len(engine.submitted) == 5


def test_best_of_of_all_orders_them(start: Start) -> None:
    reply = start(MockEngine(ranked)).complete(n=5, best_of=5, logprobs=0)
    assert texts(reply) == ["b", "d", "ccc", "aa", ""]
    assert reply["choices"][3]["logprobs"]["token_logprobs"] == [-1.0, -3.0]


def test_best_of_of_several_prompts_and_with_the_openai_package(start: Start) -> None:
    server = start(MockEngine(ranked))
    reply = server.openai.completions.create(model=MODEL, prompt=["x", "y"], best_of=3)
    assert [one.text for one in reply.choices] == ["b", "b"]
    assert [one.index for one in reply.choices] == [0, 1]
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (2, 12)


@both
def test_choices_take_places_in_the_queue(start: Start, path: str, body: Any) -> None:
    server = start(MockEngine(words), config=ServerConfig(max_num_queued_reqs=0))
    server.state.admission._slots = 2
    assert server.post(path, {**body, "n": 2}).status_code == 200
    error = error_of(server.post(path, {**body, "n": 3}), 400)
    assert error["code"] == "too_many_choices"
    server.state.admission.num_running = 1
    refused = server.post(path, {**body, "n": 2})
    assert refused.status_code == 429
    assert refused.headers["retry-after"]
    assert refused.json()["error"]["code"] == "queue_full"


@both
@pytest.mark.parametrize("stream", [False, True])
def test_places_in_the_queue_are_given_back(
    start: Start, path: str, body: Any, stream: bool
) -> None:
    seen: list[tuple[int, int]] = []

    async def reply(submit: Submit) -> AsyncIterator[Output]:
        queue = server.state.admission
        seen.append((queue.num_queued, queue.num_running))
        yield output(submit, [65, EOS], "stop")

    server = start(MockEngine(reply))
    admission = server.state.admission
    for fields in ({"n": 3}, {"n": 2, "seed": 1}):
        reply_ = server.post(path, {**body, **fields, "stream": stream})
        assert reply_.status_code == 200
    assert seen
    assert all(running > 0 for _, running in seen)
    assert (admission.num_queued, admission.num_running, admission.num_queued_tokens) == (0, 0, 0)


@both
def test_prompt_tokens_of_choices_are_queued_once(start: Start, path: str, body: Any) -> None:
    config = ServerConfig(max_num_queued_tokens=20)
    server = start(MockEngine(says("x")), config=config)
    server.state.admission.num_queued_tokens = 10
    text = "y" * 8
    long = {"prompt": text} if path == COMPLETIONS else {"messages": body["messages"]}
    status = server.post(path, {**long, "n": 4}).status_code
    # 8 tokens fit beside the 10, whatever n is; the rendered conversation has more than 10.
    assert status == (200 if path == COMPLETIONS else 429)
    assert server.state.admission.num_queued_tokens == 10


@both
def test_a_request_id_names_the_reply_and_never_clashes(start: Start, path: str, body: Any) -> None:
    engine = MockEngine(says("x"))
    server = start(engine)
    prefix = "chatcmpl-" if path == CHAT else "cmpl-"
    for stream in (False, True):
        answer = server.post(path, {**body, "request_id": "my/id~1", "n": 2, "stream": stream})
        ids = {event["id"] for event in events_of(answer)} if stream else {answer.json()["id"]}
        assert ids == {f"{prefix}my/id~1"}
    assert len({submit.request_id for submit in engine.submitted}) == 4
    assert all("my/id~1" in submit.request_id for submit in engine.submitted)


def test_ids_of_the_engine_are_json(start: Start) -> None:
    engine = MockEngine(says("x"))
    reply = start(engine).complete(request_id='"\\\\{}<>&')
    assert reply["id"] == 'cmpl-"\\\\{}<>&'
    assert msgspec.json.decode(msgspec.json.encode(engine.submitted[0])) is not None
