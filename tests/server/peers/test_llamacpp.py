"""What llama-server's public tests check, headrace has too, and no other test of ours shows.

docs/compatibility.md says of each of those tests what holds here. Where headrace differs on
purpose, the difference is tested, so that it stays one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest

from headrace.config import ServerConfig
from headrace.text import load_tokenizer
from headrace.weights.checkpoint import TokenizerData
from tests.server.chat.test_chat import HELLO, content
from tests.server.chat.test_tools import WEATHER, with_tools
from tests.server.conftest import MODEL, Running, events_of
from tests.server.connections.test_wire import error_of
from tests.server.mock_engine import MAX_MODEL_LEN, MockEngine, says
from tests.server.serve_process import Process
from tests.tiny import BOS, IM_END, IM_START, gguf_tokenizer

Start = Callable[..., Running]
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
BODIES: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": HELLO}),
    (COMPLETIONS, {"prompt": "x"}),
]
both = pytest.mark.parametrize(("path", "body"), BODIES, ids=["chat", "completions"])
GREEDY = {"temperature": 0, "max_tokens": 12, "ignore_eos": True, "return_token_ids": True}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/props"), ("GET", "/slots"), ("POST", "/slots/0"), ("POST", "/embedding"),
        ("POST", "/v1/embeddings"), ("POST", "/v1/rerank"), ("GET", "/lora-adapters"),
    ],
)  # fmt: skip
def test_paths_of_llama_server_alone_do_not_exist(start: Start, method: str, path: str) -> None:
    """They are other work, or have another shape here."""
    reply = start(MockEngine(says("x"))).client.request(method, path, json={"prompt": "x"})
    assert error_of(reply, 404)["code"] == "not_found"


@both
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_predict", 8),
        ("n_probs", 10), ("repeat_penalty", 1.1), ("typical_p", 0.9), ("mirostat", 2),
        ("dry_multiplier", 0.8), ("xtc_probability", 0.5), ("dynatemp_range", 0.5),
        ("top_n_sigma", 1.0), ("lora", [{"id": 0, "scale": 1.0}]), ("n_cmpl", 2),
        ("post_sampling_probs", True), ("t_max_predict_ms", 50), ("grammar_lazy", True),
    ],
)  # fmt: skip
def test_fields_of_llama_server_that_change_what_comes_out_are_not_ignored(
    start: Start, path: str, body: dict[str, Any], name: str, value: Any
) -> None:
    engine = MockEngine(says("x"))
    error = error_of(start(engine).post(path, {**body, name: value}), 400)
    assert error["param"] == name
    assert error["code"] == "unsupported"
    assert not engine.submitted


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reasoning_format", "none"), ("reasoning_in_content", True), ("parse_tool_calls", False),
        ("thinking_budget_tokens", 8), ("thinking_forced_open", True),
    ],
)  # fmt: skip
def test_fields_of_its_conversations_are_refused_by_name(
    start: Start, name: str, value: Any
) -> None:
    error = error_of(start(MockEngine(says("x"))).post(CHAT, {"messages": HELLO, name: value}), 400)
    assert (error["param"], error["code"]) == (name, "unsupported")


@pytest.mark.parametrize("arguments", ["{not json", '["a"]', "7"])
def test_arguments_of_earlier_calls_that_are_not_objects_reach_the_template_as_text(
    start: Start, arguments: str
) -> None:
    function = {"name": "f", "arguments": arguments}
    call: dict[str, Any] = {"id": "1", "type": "function", "function": function}
    answer: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [call]}
    said: list[Any] = [*HELLO, answer, *HELLO]
    engine = MockEngine(says("x"))
    reply = with_tools(start, engine).post(CHAT, {"messages": said, "tools": [WEATHER]})
    assert reply.status_code == 200, reply.text
    prompt = bytes(engine.submitted[0].prompt_token_ids).decode()
    assert f"f({json.dumps({'INVALID_JSON': arguments})})" in prompt


@both
def test_its_defaults_are_taken(start: Start, path: str, body: dict[str, Any]) -> None:
    """What asks for nothing is no error, and what only concerns its own replies is named."""
    harmless: dict[str, Any] = {
        "cache_prompt": True, "grammar": "", "n_probs": 0, "repeat_penalty": 1.0, "mirostat": 0,
        "typical_p": 1.0, "dry_multiplier": 0.0, "xtc_probability": 0.0, "lora": [],
        "dynatemp_range": 0.0, "top_n_sigma": -1.0, "post_sampling_probs": False, "min_keep": 0,
        "grammar_lazy": False, "n_indent": 0, "t_max_predict_ms": -1,
    }  # fmt: skip
    server = start(MockEngine(says("x")))
    reply = server.post(path, {**body, **harmless})
    assert reply.status_code == 200, reply.text
    assert "x-ignored-params" not in reply.headers
    reply = server.post(path, {**body, "timings_per_token": True, "id_slot": 0})
    assert reply.headers["x-ignored-params"] == "id_slot,timings_per_token"


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ("string", "messages"),
        ([], "messages"),
        ([123], "messages[0]"),
        ([{}], "messages[0].role"),
        ([{"role": 123}], "messages[0].role"),
        ([{"content": "hello"}], "messages[0].role"),
        ([{"role": "system", "content": 123}], "messages[0].content"),
        ([{"role": "system", "content": "test"}, {}], "messages[1].role"),
    ],
)
def test_messages_that_are_none_are_refused_where_they_are(
    start: Start, messages: Any, param: str
) -> None:
    reply = start(MockEngine(says("x"))).post(CHAT, {"messages": messages})
    assert error_of(reply, 400)["param"] == param


@pytest.mark.parametrize("streams", [False, True])
def test_a_conversation_that_does_not_fit_is_a_plain_400_with_the_numbers(
    start: Start, streams: bool
) -> None:
    server = start(MockEngine(says("x")))
    error = error_of(server.post(CHAT, {"messages": HELLO * 100, "stream": streams}), 400)
    assert error["code"] == "context_length_exceeded"
    assert str(MAX_MODEL_LEN) in error["message"]
    assert "911 of prompt" in error["message"]
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (911, MAX_MODEL_LEN)


def test_events_of_one_reply_have_one_id_and_one_role(start: Start) -> None:
    server = start(MockEngine(says("hello")))
    events = events_of(server.post(CHAT, {"messages": HELLO, "stream": True}))
    assert len({event["id"] for event in events}) == 1
    assert {event["model"] for event in events} == {MODEL}
    first, *rest = (event["choices"][0]["delta"] for event in events)
    assert first == {"role": "assistant", "content": ""}
    assert not [delta for delta in rest if "role" in delta]
    assert rest[-1] == {}


def test_tokens_of_the_logprobs_add_up_to_the_text(start: Start) -> None:
    server = start(MockEngine(says("hello")))
    asked: dict[str, Any] = {"messages": HELLO, "logprobs": True, "top_logprobs": 10}
    # Without its end token, as that has no text.
    (choice,) = server.chat(**asked)["choices"]
    tokens = choice["logprobs"]["content"]
    assert "".join(one["token"] for one in tokens[:-1]) == choice["message"]["content"] == "hello"
    assert all(len(one["top_logprobs"]) == 10 for one in tokens)
    events = events_of(server.post(CHAT, {**asked, "stream": True}))
    parts = [event["choices"][0]["logprobs"] for event in events]
    streamed = [one for part in parts if part for one in part["content"]]
    assert streamed == tokens
    assert content(events) == "hello"


def test_the_assistants_turn_is_continued_when_asked_only(start: Start) -> None:
    engine = MockEngine(says("x"))
    server = start(engine)
    said = [*HELLO, {"role": "assistant", "content": "Whi"}]
    server.chat(messages=said)
    end = [IM_END, *b"\n", IM_START, *b"assistant\n"]
    assert engine.submitted[-1].prompt_token_ids[-len(end) - 3 :] == [*b"Whi", *end]
    parts = [{"type": "text", "text": "Wh"}, {"type": "text", "text": "i"}]
    for last in ("Whi", parts):
        said = [*HELLO, {"role": "assistant", "content": last}]
        server.chat(messages=said, continue_final_message=True)
        ids = engine.submitted[-1].prompt_token_ids
        assert IM_END not in ids[-4:]
        assert ids[-1] == ord("i")


def test_two_answers_in_a_row_are_the_templates_business(start: Start) -> None:
    engine = MockEngine(says("x"))
    answer = {"role": "assistant", "content": "a"}
    start(engine).chat(messages=[*HELLO, answer, answer])
    assert bytes(i for i in engine.submitted[0].prompt_token_ids if i < 256).count(b"a\n") == 2


def test_what_is_served_needs_a_key_too_and_the_page_that_would_show_it_none(start: Start) -> None:
    server = start(MockEngine(says("x")), config=ServerConfig(api_key=("k",)))
    for path in ("/v1/models", "/openapi.json"):
        assert error_of(server.client.get(path), 401)["code"] == "invalid_api_key"
    for path in ("/docs", "/docs/app.js"):
        assert server.client.get(path).status_code == 200


def test_a_text_survives_tokens_and_back_and_pieces_are_named(running: Process) -> None:
    text = "What is the capital of 媽 🤗 ?"
    told = running.post("/tokenize", prompt=text, return_token_strs=True).json()
    assert len(told["tokens"]) == len(told["token_strs"]) == told["count"] > 5
    assert all(told["token_strs"])
    assert running.post("/detokenize", tokens=told["tokens"]).json() == {
        "prompt": text,
        "content": text,
    }
    assert running.post("/tokenize", content=text).json()["tokens"] == told["tokens"]


def test_a_bos_is_added_where_the_tokenizer_does(start: Start) -> None:
    data = TokenizerData(kind="gguf", gguf={**gguf_tokenizer(), "add_bos_token": True})
    server = start(MockEngine(says("x")), tokenizer=load_tokenizer(data))
    assert server.post("/tokenize", {"prompt": "a"}).json()["tokens"] == [BOS, *b"a"]
    without = {"prompt": "a", "add_special_tokens": False}
    assert server.post("/tokenize", without).json()["tokens"] == [*b"a"]
    for fields, added in (({}, []), ({"add_special": True}, [BOS])):
        reply = server.post("/tokenize", {"content": "a", **fields})
        assert reply.json()["tokens"] == [*added, *b"a"]


def test_biased_tokens_never_come(running: Process) -> None:
    whole = running.post(COMPLETIONS, prompt="What is", **GREEDY).json()["choices"][0]["token_ids"]
    bias = {str(token_id): -100 for token_id in whole}
    other = running.post(COMPLETIONS, prompt="What is", logit_bias=bias, **GREEDY).json()
    ids = other["choices"][0]["token_ids"]
    assert len(ids) == 12
    assert not set(ids) & set(whole)


def test_equal_prompts_of_one_request_get_equal_answers(running: Process) -> None:
    prompts = [[*b"I believe"]] * 3
    choices = running.post(COMPLETIONS, prompt=prompts, **GREEDY).json()["choices"]
    alone = running.post(COMPLETIONS, prompt="I believe", **GREEDY).json()["choices"][0]
    assert [one["token_ids"] for one in choices] == [alone["token_ids"]] * 3


@pytest.mark.process
def test_a_text_may_go_on_to_the_end_of_the_context_and_no_further(running: Process) -> None:
    """There is no context shift: what does not fit is refused, what fills it ends by `length`."""
    context = running.ready["max_model_len"]
    prompt = [*b"Once"]
    room = context - len(prompt)
    fields = {"temperature": 0, "ignore_eos": True}
    reply = running.post(COMPLETIONS, prompt=prompt, max_tokens=room, **fields).json()
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["usage"]["total_tokens"] == context
    refused = running.post(COMPLETIONS, prompt=prompt, max_tokens=room + 1, **fields)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "context_length_exceeded"


def test_openais_package_streams_usage_and_an_end(running: Process) -> None:
    client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
    model = client.models.list().data[0].id
    messages: Any = [{"role": "user", "content": "What is the best book"}]
    chunks = list(
        client.chat.completions.create(
            model=model, messages=messages, max_tokens=8, stream=True, seed=42,
            stream_options={"include_usage": True}, extra_body={"ignore_eos": True},
        )
    )  # fmt: skip
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert [one for one in reasons if one] == ["length"] == reasons[-1:]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 8
