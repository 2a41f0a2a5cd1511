"""Every sampling field reaches the engine as asked for, or is refused, over both endpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headrace.engine.params import MODEL_DEFAULTS, SAMPLERS, SamplingParams
from headrace.protocol.openai.fields import CHAT
from tests.server.conftest import MODEL, Running
from tests.server.connections.test_wire import error_of
from tests.server.mock_engine import INFO, VOCAB_SIZE, MockEngine, says

Start = Callable[..., Running]
BODIES = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    ("/v1/completions", {"prompt": "x"}),
]
both = pytest.mark.parametrize(("path", "body"), BODIES, ids=["chat", "completions"])

REACHES: list[tuple[str, Any, str, Any]] = [
    ("repetition_penalty", 1.25, "repetition_penalty", 1.25),
    ("frequency_penalty", -2, "frequency_penalty", -2.0),
    ("presence_penalty", 2, "presence_penalty", 2.0),
    ("logit_bias", {"5": 100, "0": -100.0}, "logit_bias", {5: 100.0, 0: -100.0}),
    ("allowed_token_ids", [7, 8], "allowed_token_ids", (7, 8)),
    ("bad_words", ["ab"], "bad_words_token_ids", (tuple(b"ab"), tuple(b" ab"))),
    ("bad_words", [" b", "b"], "bad_words_token_ids", (tuple(b"b"), tuple(b" b"))),
    ("samplers", ["top_k", "temperature"], "samplers", ("top_k", "temperature")),
    ("samplers", list(SAMPLERS), "samplers", SAMPLERS),
    ("samplers", [], "samplers", ()),
    ("min_tokens", 3, "min_tokens", 3),
    ("prompt_logprobs", 2, "prompt_logprobs", 2),
    ("seed", 9, "seed", 9),
    ("stop_token_ids", [1, 2], "stop_token_ids", (1, 2)),
    ("ignore_eos", True, "ignore_eos", True),
    ("speculation", False, "speculation", False),
]


@both
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("field", "value", "name", "expected"), REACHES)
def test_a_field_reaches_the_engine(
    start: Start, path: str, body: Any, stream: bool, field: str, value: Any, name: str,
    expected: Any,
) -> None:  # fmt: skip
    engine = MockEngine(says("hello"))
    reply = start(engine).post(path, {**body, "stream": stream, field: value, "max_tokens": 20})
    assert reply.status_code == 200, reply.text
    (submit,) = engine.submitted
    assert getattr(submit.params, name) == expected
    others = {one: getattr(SamplingParams(), one) for one in SamplingParams.__struct_fields__}
    for one in others.keys() - {name, "max_tokens"}:
        assert getattr(submit.params, one) == others[one], one


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"repetition_penalty": 0}, "repetition_penalty", "0.001 to 1000"),
    ({"frequency_penalty": 2.5}, "frequency_penalty", "-2 to 2"),
    ({"presence_penalty": -2.5}, "presence_penalty", "-2 to 2"),
    ({"logit_bias": {"5": 100.5}}, "logit_bias[5]", "-100 to 100"),
    ({"logit_bias": {str(VOCAB_SIZE): 1}}, "logit_bias", str(VOCAB_SIZE - 1)),
    ({"logit_bias": {"word": 1}}, "logit_bias", str(VOCAB_SIZE - 1)),
    ({"logit_bias": {"-1": 1}}, "logit_bias", "'-1'"),
    ({"logit_bias": {"05": 1}}, "logit_bias", "'05'"),
    ({"logit_bias": {"9" * 5000: 1}}, "logit_bias", "is not a token id"),
    ({"allowed_token_ids": [1, VOCAB_SIZE]}, "allowed_token_ids[1]", str(VOCAB_SIZE - 1)),
    ({"bad_words": ["ok", ""]}, "bad_words[1]", "no tokens"),
    ({"bad_words": ["  "]}, "bad_words[0]", "no tokens"),
    ({"bad_words": [f"{i:0255d}" for i in range(40)]}, "bad_words", "16384"),
    ({"samplers": ["top_k", "magic"]}, "samplers[1]", "min_p"),
    ({"samplers": ["top_k", "top_k"]}, "samplers[1]", "second time"),
    ({"samplers": ["top_k"], "temperature": 0.5}, "temperature", "add it to samplers"),
    ({"samplers": ["top_k"], "presence_penalty": 1}, "presence_penalty", "'penalties'"),
    ({"prompt_logprobs": 21}, "prompt_logprobs", "--max-logprobs"),
    ({"priority": 1}, "priority", "--scheduling-policy priority"),
    ({"priority": 2**63}, "priority", "64 bits"),
    ({"timeout_s": -1}, "timeout_s", "0 to"),
    ({"timeout_s": 0}, "timeout_s", "more than 0"),
    ({"min_tokens": -1}, "min_tokens", "0 or more"),
    ({"min_tokens": 300, "max_tokens": None}, "min_tokens", "300"),
    ({"stop_token_ids": [VOCAB_SIZE]}, "stop_token_ids[0]", str(VOCAB_SIZE - 1)),
]  # fmt: skip


@both
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fields", "param", "said"), REFUSED, ids=lambda v: str(v)[:40])
def test_what_cannot_be_honoured_is_refused_before_anything_runs(
    start: Start, path: str, body: Any, stream: bool, fields: dict[str, Any], param: str, said: str
) -> None:
    engine = MockEngine(says("hello"))
    server = start(engine)
    error = error_of(server.post(path, {**body, "stream": stream, **fields}), 400)
    assert error["param"] == param
    assert param.partition("[")[0] in error["message"]
    assert said in error["message"]
    assert len(error["message"]) < 500
    assert engine.submitted == []
    assert server.state.admission.num_queued == 0


@both
def test_priorities_are_for_an_engine_that_has_them(start: Start, path: str, body: Any) -> None:
    info = msgspec.structs.replace(INFO, scheduling_policy="priority")
    engine = MockEngine(says("x"), info=info)
    server = start(engine)
    for priority in (-5, 0, 2**40):
        assert server.post(path, {**body, "priority": priority}).status_code == 200
    assert [submit.priority for submit in engine.submitted] == [-5, 0, 2**40]


def test_the_openai_package_sends_its_own(start: Start) -> None:
    engine = MockEngine(says("hello"))
    messages: Any = [{"role": "user", "content": "x"}]
    reply = start(engine).openai.chat.completions.create(
        model=MODEL, messages=messages, n=2, frequency_penalty=0.5, presence_penalty=-0.5,
        logit_bias={"65": -100}, seed=3, max_completion_tokens=9,
        extra_body={"repetition_penalty": 1.5, "min_tokens": 2, "allowed_token_ids": [65, 66]},
    )  # fmt: skip
    assert len(reply.choices) == 2
    params = engine.submitted[0].params
    assert (params.frequency_penalty, params.presence_penalty) == (0.5, -0.5)
    assert (params.logit_bias, params.allowed_token_ids) == ({65: -100.0}, (65, 66))
    assert (params.repetition_penalty, params.min_tokens, params.max_tokens) == (1.5, 2, 9)


def test_the_documented_samplers_are_the_engines() -> None:
    fields = msgspec.inspect.type_info(CHAT.struct)
    assert isinstance(fields, msgspec.inspect.StructType)
    (field,) = (one for one in fields.fields if one.name == "samplers")
    assert isinstance(field.type, msgspec.inspect.Metadata)
    assert field.type.extra_json_schema is not None
    listed = ", ".join(f"`{name}`" for name in SAMPLERS)
    assert listed in field.type.extra_json_schema["description"]


@both
def test_stop_strings_are_not_searched_within_min_tokens(
    start: Start, path: str, body: Any
) -> None:
    for cut in (1, 2, 99):
        server = start(MockEngine(says("aXbXc", cut=cut)))
        reply = server.post(path, {**body, "stop": "X", "min_tokens": 2, "max_tokens": 9}).json()
        choice = reply["choices"][0]
        text = choice["text"] if "text" in choice else choice["message"]["content"]
        assert (text, choice["stop_reason"]) == ("aXb", "X")
        assert reply["usage"]["completion_tokens"] == 4


OF_MODEL = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.05}


@both
def test_fields_that_a_request_leaves_out_are_the_models(
    start: Start, path: str, body: Any
) -> None:
    engine = MockEngine(says("x"))
    server = start(engine, sampling_defaults=OF_MODEL)
    left_out: tuple[dict[str, Any], ...] = (
        {},
        {"temperature": None},
        {"samplers": list(SAMPLERS)},
        {"temperature": 0},
        {"top_k": -1, "top_p": 1, "repetition_penalty": 1},
        {"samplers": ["temperature"]},
    )
    for fields in left_out:
        reply = server.post(path, {**body, **fields})
        assert reply.status_code == 200, reply.text
    taken = [
        {name: getattr(submit.params, name) for name in MODEL_DEFAULTS}
        for submit in engine.submitted
    ]
    whole = {**OF_MODEL, "min_p": 0.0}
    assert taken == [
        whole, whole, whole,
        {**whole, "temperature": 0},
        {**whole, "top_k": -1, "top_p": 1, "repetition_penalty": 1},
        {"temperature": 0.6, "top_k": 0, "top_p": 1, "min_p": 0, "repetition_penalty": 1},
    ]  # fmt: skip


def test_a_models_own_defaults_are_listed_with_it(start: Start) -> None:
    server = start(MockEngine(says("x")), sampling_defaults=OF_MODEL)
    listed = server.client.get("/v1/models").json()["data"]
    single = server.client.get(f"/v1/models/{MODEL}").json()
    assert single == listed[0]
    assert single["default_sampling_params"] == {**OF_MODEL, "min_p": 0.0}
    neutral = start(MockEngine(says("x"))).client.get(f"/v1/models/{MODEL}").json()
    assert neutral["default_sampling_params"] == {
        "temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0, "repetition_penalty": 1,
    }  # fmt: skip
