"""What has to fit and what has to exist: the context, the vocabulary, the number of rivals."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from headrace.cli.main import cli
from headrace.engine.limits import Limits, check_submit
from headrace.engine.messages import Submit
from headrace.engine.params import RANGES, SamplingParams
from headrace.errors import RequestError
from headrace.server.prompts import prompt as prompt_module
from headrace.text import load_tokenizer
from headrace.weights.checkpoint import TokenizerData
from tests.server.conftest import Running
from tests.server.mock_engine import INFO, MAX_MODEL_LEN, VOCAB_SIZE, MockEngine, says
from tests.tiny import BOS, gguf_tokenizer

Start = Callable[..., Running]


def test_prompt_and_output_have_to_fit(start: Start) -> None:
    engine = MockEngine(says("x"))
    server = start(engine)
    body = {"prompt": "y" * 200, "max_tokens": 100}
    reply = server.post("/v1/completions", body)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == "max_tokens"
    assert error["type"] == "invalid_request_error"
    assert f"maximum context length is {MAX_MODEL_LEN} tokens" in error["message"]
    for number in ("300", "200", "100"):
        assert number in error["message"]
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (200, MAX_MODEL_LEN)
    reply = server.post("/v1/completions", {"prompt": "y" * MAX_MODEL_LEN})
    assert reply.json()["error"]["code"] == "context_length_exceeded"
    assert reply.json()["error"]["param"] == "prompt"
    assert engine.submitted == []
    server.complete(prompt="y" * 200, max_tokens=56)
    assert engine.submitted[-1].params.max_tokens == 56


def test_the_default_of_16_is_cut_to_what_fits(start: Start) -> None:
    engine = MockEngine(says("x"))
    start(engine).complete(prompt="y" * (MAX_MODEL_LEN - 3))
    assert engine.submitted[0].params.max_tokens == 3


LARGE_PROMPTS: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/completions", {"prompt": "y" * 5000}, "prompt"),
    ("/v1/completions", {"prompt": ["a", "y" * 5000]}, "prompt[1]"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "y" * 5000}]}, "messages"),
]


@pytest.mark.parametrize(("path", "body", "param"), LARGE_PROMPTS)
def test_what_can_never_fit_is_refused_before_it_is_tokenized(
    start: Start, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any], param: str
) -> None:
    """/tokenize has no such limit."""
    tokenizer = load_tokenizer(TokenizerData(kind="gguf", gguf=gguf_tokenizer()))
    encoded: list[int] = []
    encode = tokenizer.encode

    def spy(text: str, **options: Any) -> list[int]:
        encoded.append(len(text))
        return encode(text, **options)

    monkeypatch.setattr(tokenizer, "encode", spy)
    monkeypatch.setattr(prompt_module, "WHOLE_CHARS", 4000)
    server = start(MockEngine(says("x")), tokenizer=tokenizer)
    error = server.post(path, body).json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", param)
    assert f"maximum context length is {MAX_MODEL_LEN} tokens" in error["message"]
    assert re.search(r"at least \d{3} tokens", error["message"])
    assert error["n_ctx"] == MAX_MODEL_LEN
    assert "n_prompt_tokens" not in error  # nobody has counted them
    assert max(encoded, default=0) < 5000
    shorter = server.post("/v1/completions", {"prompt": "y" * 3000}).json()["error"]
    assert "3000 of prompt" in shorter["message"]
    text = {"messages": body["messages"]} if "messages" in body else {"prompt": "y" * 5000}
    assert server.post("/tokenize", text).json()["count"] >= 5000


def test_the_kv_cache_limits_the_context_too(start: Start) -> None:
    info = msgspec.structs.replace(INFO, num_blocks=4, pool_tokens=64)
    server = start(MockEngine(says("x"), info=info))
    reply = server.post("/v1/completions", {"prompt": "y" * 60, "max_tokens": 5})
    assert "maximum context length is 64 tokens" in reply.json()["error"]["message"]


def test_one_of_several_prompts_that_does_not_fit_refuses_all(start: Start) -> None:
    engine = MockEngine(says("x"))
    reply = start(engine).post("/v1/completions", {"prompt": ["a", "y" * MAX_MODEL_LEN]})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "prompt[1]"
    assert engine.submitted == []


@pytest.mark.parametrize(
    ("prompt", "param"), [("", "prompt"), ([[]], "prompt"), (["a", ""], "prompt[1]")]
)
def test_an_empty_prompt_without_bos_is_refused(start: Start, prompt: Any, param: str) -> None:
    reply = start(MockEngine(says("x"))).post("/v1/completions", {"prompt": prompt})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param
    assert "no tokens" in reply.json()["error"]["message"]


def test_an_empty_prompt_is_a_bos_where_the_tokenizer_adds_one(start: Start) -> None:
    data = TokenizerData(kind="gguf", gguf={**gguf_tokenizer(), "add_bos_token": True})
    engine = MockEngine(says("x"))
    server = start(engine, tokenizer=load_tokenizer(data))
    server.complete(prompt=["", "a"])
    assert sorted(submit.prompt_token_ids for submit in engine.submitted) == [[BOS], [BOS, *b"a"]]
    reply = server.post("/v1/completions", {"prompt": "", "add_special_tokens": False})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "prompt"


@pytest.mark.parametrize(
    ("text", "add", "warned"),
    [
        ("<|bos|>a", None, True),
        ("a", None, False),
        ("<|bos|>a", False, False),
    ],
)
def test_two_bos_tokens_are_warned_of(
    start: Start, caplog: pytest.LogCaptureFixture, text: str, add: bool | None, warned: bool
) -> None:
    data = TokenizerData(kind="gguf", gguf={**gguf_tokenizer(), "add_bos_token": True})
    server = start(MockEngine(says("x")), tokenizer=load_tokenizer(data))
    with caplog.at_level(logging.WARNING):
        server.complete(prompt=text, add_special_tokens=add)
    assert any("two beginning-of-text" in message for message in caplog.messages) is warned


def test_ids_outside_the_vocabulary_are_refused(start: Start) -> None:
    server = start(MockEngine(says("x")))
    for fields, param in (
        ({"prompt": [1, VOCAB_SIZE]}, "prompt[1]"),
        ({"prompt": "a", "stop_token_ids": [0, VOCAB_SIZE]}, "stop_token_ids[1]"),
    ):
        reply = server.post("/v1/completions", fields)
        assert reply.status_code == 400
        assert reply.json()["error"]["param"] == param
        assert str(VOCAB_SIZE - 1) in reply.json()["error"]["message"]


def test_too_many_log_probabilities_are_refused(start: Start) -> None:
    reply = start(MockEngine(says("x"))).post("/v1/completions", {"prompt": "a", "logprobs": 21})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "logprobs"
    assert "--max-logprobs" in reply.json()["error"]["message"]


OUTSIDE = [
    ("temperature", -0.1), ("temperature", 10_000.5), ("top_k", -2), ("top_p", -0.1),
    ("top_p", 1.01), ("min_p", -0.1), ("min_p", 1.5), ("seed", 2**63), ("seed", -(2**63) - 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), OUTSIDE)
def test_sampling_numbers_out_of_range_are_refused_in_the_engines_words(
    start: Start, name: str, value: float
) -> None:
    """The same over HTTP and in process."""
    server = start(MockEngine(says("x")))
    reply = server.post("/v1/completions", {"prompt": "a", name: value})
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert (error["param"], error["code"]) == (name, "invalid_value")
    assert f"{value}; it must be {RANGES[name]}" in error["message"]
    submit = Submit("a", [1], SamplingParams(**{name: value}))  # type: ignore[arg-type]
    with pytest.raises(RequestError) as caught:
        check_submit(submit, Limits.of(INFO, 5))
    assert str(caught.value) == error["message"]


@pytest.mark.parametrize(("name", "value"), OUTSIDE)
def test_the_command_line_has_the_same_ranges(name: str, value: float) -> None:
    flag = "--" + name.replace("_", "-")
    result = CliRunner().invoke(cli, ["generate", "absent.gguf", "-p", "a", flag, str(value)])
    assert result.exit_code == 2
    assert flag in result.output
    assert "is out of range" in result.output


class Recorder(ThreadPoolExecutor):
    """Worker threads that count what they are given."""

    count = 0

    def submit(self, *args: Any, **options: Any) -> Future[Any]:
        self.count += 1
        return super().submit(*args, **options)


MESSAGE = {"role": "user", "content": "x"}
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"y": "y" * 5000}}}
LARGE: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * 5000}]}),
    (
        "/v1/chat/completions",
        {"messages": [MESSAGE, {"role": "assistant", "content": "", "tool_calls": [CALL]}]},
    ),
    ("/v1/chat/completions", {"messages": [{**MESSAGE, "reasoning_content": "y" * 5000}]}),
    ("/v1/chat/completions", {"messages": [MESSAGE], "chat_template_kwargs": {"a": "b" * 5000}}),
    ("/v1/chat/completions", {"messages": [MESSAGE] * 200}),
    ("/v1/completions", {"prompt": ["abcdef"] * 500}),
    ("/tokenize", {"prompt": "x" * 5000}),
    ("/tokenize", {"messages": [MESSAGE] * 200}),
    ("/detokenize", {"tokens": [65] * 5000}),
]


@pytest.mark.load
@pytest.mark.parametrize(("path", "body"), LARGE, ids=range(len(LARGE)))
def test_large_bodies_do_not_hold_the_event_loop(
    start: Start, path: str, body: dict[str, Any]
) -> None:
    info = msgspec.structs.replace(
        INFO, max_model_len=100_000, num_blocks=10_000, pool_tokens=160_000
    )
    server = start(MockEngine(says("x"), info=info))
    workers = Recorder(1)
    if path in ("/tokenize", "/detokenize"):
        server.state.side_work.workers = workers
    else:
        server.state.workers = workers
    reply = server.post(path, body)
    assert reply.status_code == 200, reply.text
    assert workers.count == 1
    assert server.post("/v1/chat/completions", {"messages": [MESSAGE]}).status_code == 200
    assert workers.count == 1
    workers.shutdown()


def test_a_body_that_takes_long_to_parse_does_not_hold_it_either(start: Start) -> None:
    server = start(MockEngine(says("x")))
    server.state.workers = workers = Recorder(1)
    server.state.large_bodies._thread = decoding = Recorder(1)
    reply = server.post("/v1/completions", {"prompt": [1] * 100_000})
    assert reply.json()["error"]["code"] == "context_length_exceeded"
    assert (decoding.count, workers.count) == (1, 1)
    workers.shutdown()
