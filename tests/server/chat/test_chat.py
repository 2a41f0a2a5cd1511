"""POST /v1/chat/completions: the shape of replies and streams, templates, and what is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from headrace.text import ChatTemplate
from tests.server.conftest import MODEL, Running
from tests.server.mock_engine import MAX_MODEL_LEN, MockEngine, says
from tests.server.routes.test_completions import TEXT
from tests.tiny import BOS, CHAT_TEMPLATE, EOS, IM_END, IM_START

Start = Callable[..., Running]
HELLO = [{"role": "user", "content": "x"}]
HELLO_IDS = [IM_START, *b"user\nx", IM_END, *b"\n", IM_START, *b"assistant\n"]


def content(events: list[Any]) -> str:
    return "".join(c["delta"].get("content", "") for e in events for c in e["choices"])


def refused(server: Running, **fields: Any) -> Any:
    reply = server.post("/v1/chat/completions", {"messages": HELLO, **fields})
    assert reply.status_code == 400, reply.text
    return reply.json()["error"]


def test_a_whole_reply(start: Start) -> None:
    engine = MockEngine(says("hello", cached_tokens=16))
    reply = start(engine).chat(model=MODEL)
    assert engine.submitted[0].prompt_token_ids == HELLO_IDS
    assert reply["id"].startswith("chatcmpl-")
    assert reply["object"] == "chat.completion"
    assert reply["model"] == MODEL
    assert isinstance(reply["created"], int)
    assert reply["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hello", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
        }
    ]
    assert reply["usage"]["prompt_tokens"] == len(HELLO_IDS)
    assert reply["usage"]["prompt_tokens_details"] == {"cached_tokens": 16}


def test_the_openai_package_reads_replies_and_streams(start: Start) -> None:
    server = start(MockEngine(says("größe 水")))
    chat = server.openai.chat.completions
    messages: Any = HELLO
    whole = chat.create(model=MODEL, messages=messages)
    assert whole.choices[0].message.content == "größe 水"
    assert whole.choices[0].message.role == "assistant"
    chunks = list(
        chat.create(
            model=MODEL, messages=messages, stream=True, stream_options={"include_usage": True}
        )
    )
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == "größe 水"
    assert deltas[0].role == "assistant"
    assert chunks[-1].usage is not None
    # What a client has got can be sent back as history.
    said = whole.choices[0].message.model_dump()
    raw = chat.with_raw_response.create(model=MODEL, messages=[*messages, said, *messages])
    assert "x-ignored-params" not in raw.headers


async def test_the_async_openai_package_streams(start: Start) -> None:
    server = start(MockEngine(says("hello")))
    messages: Any = HELLO
    async with server.async_openai as client:
        chunks = await client.chat.completions.create(model=MODEL, messages=messages, stream=True)
        text = [c.choices[0].delta.content or "" async for c in chunks if c.choices]
    assert "".join(text) == "hello"


def test_events_of_a_stream(start: Start) -> None:
    server = start(MockEngine(says("hi", cut=2)))
    role, text, end = server.stream_chat()
    for event in (role, text, end):
        assert event["object"] == "chat.completion.chunk"
        assert event["id"] == role["id"]
        assert event["created"] == role["created"]
        assert event["system_fingerprint"] == "fp_0123456789ab"
        assert "usage" not in event
    first = {"index": 0, "logprobs": None, "finish_reason": None}
    assert role["choices"] == [{**first, "delta": {"role": "assistant", "content": ""}}]
    assert text["choices"] == [{**first, "delta": {"content": "hi"}}]
    assert end["choices"] == [{**first, "delta": {}, "finish_reason": "stop", "stop_reason": None}]


def test_usage_of_a_stream_comes_last_and_is_null_before(start: Start) -> None:
    *before, last = start(MockEngine(says("hi"))).stream_chat(
        stream_options={"include_usage": True}
    )
    assert len(before) == 4
    assert all(event["usage"] is None for event in before)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize("cut", [1, 2, 3, 5, 50])
def test_every_cut_of_the_ids_gives_the_same_text(start: Start, cut: int) -> None:
    server = start(MockEngine(says(TEXT, cut=cut)))
    events = server.stream_chat()
    assert content(events) == TEXT == server.chat()["choices"][0]["message"]["content"]
    # A token that completes no character has nothing to say.
    assert all(event["choices"][0]["delta"] != {"content": ""} for event in events)


def test_token_ids(start: Start) -> None:
    server = start(MockEngine(says("水")))
    whole = server.chat(return_token_ids=True)
    ids = [*"水".encode(), EOS]
    assert whole["prompt_token_ids"] == HELLO_IDS
    assert whole["choices"][0]["token_ids"] == ids
    events = server.stream_chat(return_token_ids=True)
    assert events[0]["prompt_token_ids"] == HELLO_IDS
    assert all("prompt_token_ids" not in event for event in events[1:])
    seen = [i for event in events for i in event["choices"][0].get("token_ids", [])]
    assert seen == ids
    assert content(events) == "水"


def test_log_probabilities(start: Start) -> None:
    server = start(MockEngine(says("é")))
    logprobs = server.chat(logprobs=True, top_logprobs=2)["choices"][0]["logprobs"]
    assert logprobs["refusal"] is None
    first, second, end = logprobs["content"]
    assert first["bytes"] == [0xC3]
    assert second["bytes"] == [0xA9]
    assert first["token"] == second["token"] == "�"
    assert end["token"] == "<|eos|>"
    assert first["logprob"] == -0.195
    assert len(first["top_logprobs"]) == 2
    assert first["top_logprobs"][1]["logprob"] == -9999.0
    assert set(first["top_logprobs"][0]) == {"token", "logprob", "bytes"}


def test_log_probabilities_of_a_stream_are_those_of_a_whole_reply(start: Start) -> None:
    server = start(MockEngine(says(TEXT, cut=3)))
    fields = {"logprobs": True, "top_logprobs": 1, "stop": ", z"}
    whole = server.chat(**fields)["choices"][0]["logprobs"]["content"]
    events = server.stream_chat(**fields)
    seen = [
        one
        for event in events
        for one in (event["choices"][0]["logprobs"] or {"content": []})["content"]
    ]
    assert seen == whole
    assert len(whole) == len(TEXT.encode())
    assert events[-1]["choices"][0]["delta"] == {}


def test_no_rivals_unless_asked(start: Start) -> None:
    logprobs = start(MockEngine(says("a"))).chat(logprobs=True)["choices"][0]["logprobs"]
    assert [one["top_logprobs"] for one in logprobs["content"]] == [[], []]


def test_stop_string(start: Start) -> None:
    server = start(MockEngine(says("one two three", cut=2)))
    choice = server.chat(stop=["three", "wo"])["choices"][0]
    assert choice["message"]["content"] == "one t"
    assert choice["stop_reason"] == "wo"
    events = server.stream_chat(stop=["three", "wo"], stream_options={"include_usage": True})
    assert content(events) == "one t"
    assert events[-1]["usage"]["completion_tokens"] == 7


def test_without_a_limit_the_reply_goes_to_the_end_of_the_context(start: Start) -> None:
    engine = MockEngine(says("x"))
    server = start(engine)
    server.chat()
    server.chat(max_tokens=5)
    server.chat(max_tokens=5, max_completion_tokens=7)
    limits = [submit.params.max_tokens for submit in engine.submitted]
    assert limits == [MAX_MODEL_LEN - len(HELLO_IDS), 5, 7]


def test_prompt_and_output_have_to_fit(start: Start) -> None:
    server = start(MockEngine(says("x")))
    error = refused(server, max_completion_tokens=MAX_MODEL_LEN)
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == "max_completion_tokens"
    assert f"maximum context length is {MAX_MODEL_LEN} tokens" in error["message"]
    error = refused(server, messages=[{"role": "user", "content": "x" * MAX_MODEL_LEN}])
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == "messages"


def test_content_in_parts_is_content_as_text(start: Start) -> None:
    engine = MockEngine(says("x"))
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    server = start(engine)
    server.chat(messages=[{"role": "user", "content": parts}])
    server.chat(messages=[{"role": "user", "content": "one\ntwo"}])
    first, second = engine.submitted
    assert first.prompt_token_ids == second.prompt_token_ids


def test_a_control_token_in_a_message_is_text(start: Start) -> None:
    engine = MockEngine(says("x"))
    start(engine).chat(messages=[{"role": "user", "content": "<|im_end|>"}])
    ids = engine.submitted[0].prompt_token_ids
    assert ids == [
        IM_START, *b"user\n<|im_end|>", IM_END, *b"\n", IM_START, *b"assistant\n",
    ]  # fmt: skip


def test_the_turn_is_opened_or_continued(start: Start) -> None:
    engine = MockEngine(says("x"))
    server = start(engine)
    server.chat(add_generation_prompt=False)
    assert engine.submitted[-1].prompt_token_ids == HELLO_IDS[: -len(b"assistant\n") - 1]
    said = [*HELLO, {"role": "assistant", "content": "I thi"}]
    server.chat(messages=said, continue_final_message=True)
    assert engine.submitted[-1].prompt_token_ids[-5:] == [*b"I thi"]
    server.chat(messages=said, continue_final_message=True, add_generation_prompt=False)
    assert engine.submitted[-1].prompt_token_ids[-5:] == [*b"I thi"]
    both = {"continue_final_message": True, "add_generation_prompt": True}
    assert refused(server, **both)["param"] == "continue_final_message"


def test_variables_for_the_template(start: Start) -> None:
    template = ChatTemplate("{{ mood }}{{ reasoning_effort }}{{ messages[0].content }}")
    engine = MockEngine(says("x"))
    server = start(engine, template=template)
    server.chat(chat_template_kwargs={"mood": "gay "}, reasoning_effort="low")
    assert engine.submitted[-1].prompt_token_ids == [*b"gay lowx"]
    error = refused(server, chat_template_kwargs={"messages": []})
    assert error["param"] == "chat_template_kwargs.messages"


def test_variables_of_the_server_come_after_those_of_the_request(start: Start) -> None:
    template = ChatTemplate("{{ mood }}{{ reasoning_effort }}{{ messages[0].content }}")
    engine = MockEngine(says("x"))
    defaults = {"mood": "sad ", "reasoning_effort": "high"}
    server = start(engine, template=template, template_defaults=defaults)
    server.chat()
    assert engine.submitted[-1].prompt_token_ids == [*b"sad highx"]
    server.chat(chat_template_kwargs={"mood": "gay "}, reasoning_effort="low")
    assert engine.submitted[-1].prompt_token_ids == [*b"gay lowx"]


def test_a_template_in_a_request_is_taken_where_that_is_allowed(start: Start) -> None:
    engine = MockEngine(says("x"))
    own = "{{ messages[0].content }}<|im_end|>!"
    error = refused(start(engine), chat_template=own)
    assert error["param"] == "chat_template"
    assert "--trust-request-chat-template" in error["message"]
    server = start(engine, trust_request_template=True)
    for _ in range(2):
        server.chat(chat_template=own, messages=[{"role": "user", "content": "a<|im_end|>"}])
        ids = engine.submitted[-1].prompt_token_ids
        assert ids == [*b"a<|im_end|>", IM_END, *b"!"], "what the user wrote stays text"
    for bad in ("{% for %}", "{{ 'x' * 10**9 }}", "x" * 300_000):
        assert refused(server, chat_template=bad)["code"] == "template_error"
    server.chat(chat_template="{{ chat_template is defined }}{{ messages[0].role }}")
    assert engine.submitted[-1].prompt_token_ids == [*b"Falseuser"]


def test_special_tokens_are_added_when_asked_only(start: Start, tokenizer: Any) -> None:
    engine = MockEngine(says("x"))
    server = start(engine, template=ChatTemplate("<|bos|>{{ messages[0].content }}"))
    server.chat()
    assert engine.submitted[-1].prompt_token_ids == [BOS, *b"x"]


def test_a_template_that_refuses(start: Start) -> None:
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}")
    error = refused(start(MockEngine(says("x")), template=template))
    assert error["param"] == "messages"
    assert "roles must alternate" in error["message"]


def test_a_model_without_a_template(start: Start) -> None:
    error = refused(start(MockEngine(says("x")), template=None))
    assert "--chat-template" in error["message"]
    assert "/v1/completions" in error["message"]


def test_a_template_that_gives_nothing(start: Start) -> None:
    error = refused(start(MockEngine(says("x")), template=ChatTemplate("")))
    assert error["param"] == "messages"
    assert "no tokens" in error["message"]


def test_images_are_refused_by_name(start: Start) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    error = refused(
        start(MockEngine(says("x"))), messages=[*HELLO, {"role": "user", "content": parts}]
    )
    assert error["param"] == "messages[1].content[1].type"
    assert "image_url" in error["message"]


def test_tool_history_reaches_the_template(start: Start) -> None:
    source = (
        "{% for m in messages %}{{ m.role }}:{% for c in m.tool_calls or [] %}"
        "{{ c.function.name }}={{ c.function.arguments.city }}{% endfor %}{{ m.content }};"
        "{% endfor %}"
    )
    engine = MockEngine(says("x"))
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"city":"K"}'}}
    start(engine, template=ChatTemplate(source)).chat(
        messages=[
            *HELLO,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "sun"},
        ]
    )
    said = bytes(engine.submitted[0].prompt_token_ids)
    assert said == b"user:x;assistant:f=K;tool:sun;"


def test_a_large_conversation_is_rendered_in_a_worker_thread(start: Start) -> None:
    threads = []

    class Spy(ChatTemplate):
        def render_segments(self, *args: Any, **kwargs: Any) -> Any:
            threads.append(threading.current_thread().name)
            return super().render_segments(*args, **kwargs)

    server = start(MockEngine(says("x")), template=Spy(CHAT_TEMPLATE))
    server.chat()
    error = refused(server, messages=[{"role": "user", "content": "y" * 10_000}])
    assert str(10_000 + len(HELLO_IDS) - 1) in error["message"]
    small, large = threads
    assert large.startswith("headrace-text")
    assert not small.startswith("headrace-text")


@pytest.mark.parametrize("depth", [100, 900])
def test_deeply_nested_values(start: Start, depth: int) -> None:
    """Whatever depth the JSON decoder lets through ends this request only, as a 400 at worst."""
    nested = "[" * depth + "]" * depth
    body = (
        '{"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"a": ' + nested
    )
    call = '{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": ' + nested
    also = '{"messages": [{"role": "assistant", "tool_calls": [' + call + "}}}]}]}"
    server = start(MockEngine(says("x")), template=ChatTemplate("{{ messages | tojson }}"))
    for content in (body + "}}", also):
        headers = {"content-type": "application/json"}
        reply = server.client.post("/v1/chat/completions", content=content, headers=headers)
        assert reply.status_code in (200, 400), reply.text
    assert server.chat()["choices"][0]["message"]["content"] == "x"
