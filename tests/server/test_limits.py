"""What has to fit and what has to exist: the context, the vocabulary, the number of rivals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

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


def test_the_kv_cache_limits_the_context_too(start: Start) -> None:
    info = msgspec.structs.replace(INFO, num_blocks=4)
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
