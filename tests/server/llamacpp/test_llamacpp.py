"""llama-server's own endpoints: /completion and /infill, whole and streamed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from headrace.engine.messages import Output, Submit
from headrace.protocol.sse import SSEReader
from headrace.text import Tokenizer, load_tokenizer
from headrace.weights.checkpoint import TokenizerData
from tests.server.conftest import MODEL, Running
from tests.server.mock_engine import INFO, MAX_MODEL_LEN, MockEngine, says
from tests.tiny import BOS, EOS, IM_END, gguf_tokenizer, tokenizer_config

Start = Callable[..., Running]


def complete(server: Running, **fields: Any) -> Any:
    reply = server.post("/completion", {"prompt": "x", **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


def stream(server: Running, path: str = "/completion", **fields: Any) -> list[Any]:
    reply = server.post(path, {"prompt": "x", "stream": True, **fields})
    assert reply.status_code == 200, reply.text
    return [msgspec.json.decode(event.data) for event in SSEReader().feed(reply.content)]


def refused(server: Running, **fields: Any) -> dict[str, Any]:
    reply = server.post("/completion", {"prompt": "x", **fields})
    assert reply.status_code == 400, reply.text
    error: dict[str, Any] = reply.json()["error"]
    return error


def test_a_whole_reply(start: Start) -> None:
    server = start(MockEngine(says("hel\nlo", cached_tokens=1)))
    told = complete(server, prompt="ab", n_predict=32, seed=7, temperature=0.5)
    timings = told.pop("timings")
    settings = told.pop("generation_settings")
    assert told == {
        "index": 0,
        "content": "hel\nlo",
        "tokens": [],
        "stop": True,
        "model": MODEL,
        "tokens_predicted": 7,
        "tokens_evaluated": 2,
        "prompt": "ab",
        "has_new_line": True,
        "truncated": False,
        "stop_type": "eos",
        "stopping_word": "",
        "tokens_cached": 1,
    }
    assert (settings["n_predict"], settings["seed"], settings["temperature"]) == (32, 7, 0.5)
    assert (timings["cache_n"], timings["prompt_n"], timings["predicted_n"]) == (1, 1, 7)


def test_a_stream_joins_to_the_whole_and_ends_with_its_end(start: Start) -> None:
    server = start(MockEngine(says("hello wörld", cut=3)))
    whole = complete(server, return_tokens=True)
    events = stream(server, return_tokens=True)
    assert all(event["stop"] is False for event in events[:-1])
    assert "".join(event["content"] for event in events) == whole["content"]
    assert [token for event in events for token in event["tokens"]] == whole["tokens"]
    last = events[-1]
    assert (last["content"], last["tokens"]) == ("", [])
    for name in ("stop", "stop_type", "tokens_predicted", "tokens_evaluated", "prompt"):
        assert last[name] == whole[name]


def test_what_ended_it_is_named(start: Start) -> None:
    server = start(MockEngine(says("hello world")))
    cut = complete(server, n_predict=4)
    assert (cut["stop_type"], cut["truncated"], cut["content"]) == ("limit", False, "hell")
    word = complete(server, stop=["wor"])
    assert (word["stop_type"], word["stopping_word"], word["content"]) == ("word", "wor", "hello ")
    long = start(MockEngine(says("x" * MAX_MODEL_LEN)))
    ended = complete(long)
    assert (ended["stop_type"], ended["truncated"]) == ("limit", True)
    assert ended["tokens_predicted"] + ended["tokens_evaluated"] == MAX_MODEL_LEN
    # A number beyond the context is cut to it.
    assert complete(long, n_predict=10**6)["truncated"] is True


def test_prompts_are_text_ids_and_both_mixed(start: Start) -> None:
    server = start(MockEngine(says("a")))
    complete(server, prompt="ab")
    complete(server, prompt=[BOS, 98, 99])
    complete(server, prompt=["ab", 99, "cd"])
    complete(server, prompt=[99, "ab"])
    complete(server, prompt={"prompt_string": "ab"})
    several = complete(server, prompt=["ab", [99, 100], [101, "f"]])
    assert [one["index"] for one in several] == [0, 1, 2]
    assert [one["prompt"] for one in several] == ["ab", "cd", "ef"]
    sent = [list(submit.prompt_token_ids) for submit in server.engine.submitted]
    assert sent == [
        [97, 98], [BOS, 98, 99], [97, 98, 99, 99, 100], [99, 97, 98], [97, 98],
        [97, 98], [99, 100], [101, 102],
    ]  # fmt: skip


def test_several_answers_to_a_prompt(start: Start) -> None:
    server = start(MockEngine(says("a")))
    assert [one["content"] for one in complete(server, n_cmpl=3)] == ["a", "a", "a"]
    events = stream(server, n_cmpl=2)
    assert sorted(event["index"] for event in events if event["stop"]) == [0, 1]


def test_probabilities_are_the_models_own(start: Start) -> None:
    server = start(MockEngine(says("hi")))
    told = complete(server, n_probs=2)["completion_probabilities"]
    first = told[0]
    assert (first["id"], first["token"], first["bytes"]) == (104, "h", [104])
    assert len(first["top_logprobs"]) == 2
    events = stream(server, n_probs=2)
    streamed = [row for event in events for row in event.get("completion_probabilities", [])]
    assert streamed == told


def test_steps_come_in_llama_servers_order(start: Start) -> None:
    server = start(MockEngine(says("a")))
    complete(server, top_k=5, top_p=0.5, temperature=0.7)
    complete(server, samplers=["top_k", "typ_p", "temperature"], top_k=5, top_p=0.5, seed=-1)
    first, second = (submit.params for submit in server.engine.submitted)
    assert first.samplers == ("penalties", "top_k", "top_p", "min_p", "temperature")
    assert (first.top_k, first.top_p, first.temperature) == (5, 0.5, 0.7)
    assert second.samplers == ("top_k", "temperature")
    assert (second.top_k, second.top_p, second.seed) == (5, 1.0, None)


def test_biases_are_pairs_or_an_object_and_false_is_never(start: Start) -> None:
    server = start(MockEngine(says("a")))
    complete(server, logit_bias=[[97, 2.5], [98, False]])
    complete(server, logit_bias={"97": -1})
    first, second = (submit.params.logit_bias for submit in server.engine.submitted)
    assert (first, second) == ({97: 2.5, 98: -100.0}, {97: -1.0})


def test_grammars_and_schemas_hold_the_answer(start: Start) -> None:
    server = start(MockEngine(says("a")))
    complete(server, grammar='root ::= "a" | "b"')
    complete(server, json_schema={"type": "integer"})
    assert all(submit.params.grammar is not None for submit in server.engine.submitted)
    assert refused(server, grammar="root ::= (")["param"] == "grammar"


def test_fields_of_the_reply_may_be_chosen(start: Start) -> None:
    server = start(MockEngine(says("abc")))
    fields = ["content", "generation_settings/n_predict", "prompt", "nothing/here"]
    told = complete(server, n_predict=3, response_fields=fields)
    assert told == {"content": "abc", "generation_settings/n_predict": 3, "prompt": "x"}


def test_timings_have_the_drafts_and_a_request_can_do_without(start: Start) -> None:
    async def reply(submit: Submit) -> AsyncIterator[Output]:
        made = 5 if submit.params.speculation else 0
        yield Output(submit.request_id, [65], draft_tokens=made, accepted_tokens=min(made, 2))
        yield Output(submit.request_id, [66], finish_reason="length")

    server = start(MockEngine(reply))
    timings = complete(server)["timings"]
    assert (timings["draft_n"], timings["draft_n_accepted"]) == (5, 2)
    assert "draft_n" not in complete(server, speculation=False)["timings"]


def test_timings_come_with_every_event_on_request(start: Start) -> None:
    server = start(MockEngine(says("abc")))
    events = stream(server, timings_per_token=True)
    assert [event["timings"]["predicted_n"] for event in events] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": [[1], {"x": 1}]}, "prompt[1]"),
        ({"prompt": [1, None]}, "prompt[1]"),
        ({"prompt": [10**9, "a"]}, "prompt[0]"),
        ({"prompt": {"prompt_string": "a", "multimodal_data": ["AA"]}}, "prompt.multimodal_data"),
        ({"n_predict": 0}, "n_predict"),
        ({"n_predict": -2}, "n_predict"),
        ({"n_probs": 1000}, "n_probs"),
        ({"repeat_penalty": 1.1}, "repeat_penalty"),
        ({"presence_penalty": 1}, "presence_penalty"),
        ({"post_sampling_probs": True}, "post_sampling_probs"),
        ({"mirostat": 2}, "mirostat"),
        ({"samplers": ["top_x"]}, "samplers[0]"),
        ({"samplers": ["top_k", "top_k"]}, "samplers[1]"),
        ({"logit_bias": [["a", 1]]}, "logit_bias[0][0]"),
        ({"return_progress": True}, "return_progress"),
    ],
)
def test_what_cannot_be_done_is_refused_by_its_own_name(
    start: Start, fields: dict[str, Any], param: str
) -> None:
    server = start(MockEngine(says("a")))
    assert refused(server, **fields)["param"] == param
    assert server.engine.submitted == []


def test_a_repeat_penalty_over_all_is_ours(start: Start) -> None:
    server = start(MockEngine(says("a")))
    complete(server, repeat_penalty=1.1, repeat_last_n=-1)
    assert server.engine.submitted[0].params.repetition_penalty == 1.1


def test_a_long_prompt_is_refused_with_the_numbers(start: Start) -> None:
    error = refused(start(MockEngine(says("a"))), prompt="x" * 1000)
    assert (error["code"], error["n_ctx"]) == ("context_length_exceeded", MAX_MODEL_LEN)
    assert refused(start(MockEngine(says("a"))), prompt=["x" * 200, 1, "x" * 200])["n_ctx"]


def test_a_model_without_marks_for_a_gap_says_so(start: Start) -> None:
    server = start(MockEngine(says("a")))
    reply = server.post("/infill", {"input_prefix": "a", "input_suffix": "b"})
    assert reply.status_code == 400
    assert "fim_prefix" in reply.json()["error"]["message"]


MARKS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>")


@pytest.fixture(scope="module")
def coder() -> Tokenizer:
    """The tokenizer with marks for gaps among its control tokens."""
    gguf = gguf_tokenizer()
    gguf["tokens"] += MARKS
    gguf["token_type"] += [3] * len(MARKS)
    data = TokenizerData(kind="gguf", gguf=gguf, config=tokenizer_config())
    return load_tokenizer(data, (EOS, IM_END))


def test_a_gap_is_described_with_the_models_marks(start: Start, coder: Tokenizer) -> None:
    engine = MockEngine(says("a"))
    engine.info = msgspec.structs.replace(INFO, max_model_len=512)
    server = start(engine, tokenizer=coder)
    body = {
        "input_prefix": "def f():\n",
        "input_suffix": "\nf()",
        "prompt": "    <|fim_middle|>",
        "input_extra": [{"filename": "g.py", "text": "def g(): ..."}],
    }
    reply = server.post("/infill", body)
    assert reply.status_code == 200, reply.text
    assert reply.json()["content"] == "a"
    ids = engine.submitted[0].prompt_token_ids
    pre, suf, mid, repo, sep = (coder.token_to_id(mark) for mark in MARKS)
    # What the client wrote like a mark is text.
    assert mid is not None
    assert list(ids).count(mid) == 1
    text = coder.decode(ids, skip_special_tokens=False)
    assert text == (
        "<|repo_name|>myproject\n<|file_sep|>g.py\ndef g(): ...<|file_sep|>filename\n"
        "<|fim_prefix|>def f():\n    <|fim_middle|><|fim_suffix|>\nf()<|fim_middle|>"
    )
    assert (ids[0], ids[-1]) == (repo, mid)
    assert pre in ids and suf in ids and sep in ids
    for extra in ({}, {"filename": "ok"}, {"filename": 123, "text": "abc"}):
        assert server.post("/infill", {**body, "input_extra": [extra]}).status_code == 400


def test_a_client_that_leaves_takes_its_request_along(start: Start) -> None:
    server = start(MockEngine(says("hello" * 30, delay_s=0.02)))
    with server.client.stream("POST", "/completion", json={"prompt": "x", "stream": True}) as reply:
        next(reply.iter_lines())
    assert server.engine.ended.wait(5)
    assert server.engine.cancelled
