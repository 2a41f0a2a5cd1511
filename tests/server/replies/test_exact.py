"""The same request whole, streamed and in process: the same tokens, text and log probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.engine.params import SamplingParams
from headrace.llm import LLM
from headrace.server.generation.logprobs import floored
from tests.server.conftest import events_of
from tests.server.replies.test_any_cut import folded
from tests.server.serve_process import Process

BASE: dict[str, Any] = {"max_tokens": 24, "seed": 11, "ignore_eos": True}
REQUESTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("plain", {}, {}),
    ("greedy", {"temperature": 0}, {}),
    ("filters", {"top_k": 40, "top_p": 0.9, "min_p": 0.01, "temperature": 0.8}, {}),
    ("repetition", {"repetition_penalty": 1.7}, {}),
    ("frequency", {"frequency_penalty": 1.5, "temperature": 0}, {}),
    ("presence", {"presence_penalty": -2.0, "temperature": 0}, {}),
    ("bias", {"logit_bias": {"97": 4.5, "98": -100}}, {"logit_bias": {97: 4.5, 98: -100.0}}),
    ("allowed", {"allowed_token_ids": [97, 98, 99]}, {"allowed_token_ids": (97, 98, 99)}),
    (
        "bad words",
        {"bad_words": ["a", "bc"], "allowed_token_ids": [97, 98, 99]},
        {
            "bad_words_token_ids": ((97,), (32, 97), (98, 99), (32, 98, 99)),
            "allowed_token_ids": (97, 98, 99),
        },
    ),
    ("samplers", {"samplers": ["top_p", "temperature"], "top_p": 0.8, "temperature": 1.5}, {}),
    ("logprobs", {"logprobs": 3}, {}),
    ("prompt logprobs", {"prompt_logprobs": 2, "logprobs": 0}, {}),
    ("stop", {"stop": ["a", "b", "e"], "min_tokens": 5}, {}),
    ("stop ids", {"stop_token_ids": list(range(97, 123)), "min_tokens": 3}, {}),
]


@pytest.fixture(scope="module")
def llm(model: Path) -> LLM:
    return LLM(str(model), backend="reference", num_gpu_blocks_override=64)


@pytest.fixture(scope="module")
def client(running: Process) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=running.url, timeout=60, verify=False) as one:
        yield one


def ask(client: httpx.Client, path: str = "/v1/completions", **body: Any) -> dict[str, Any]:
    """The whole reply, which has to be what the stream adds up to."""
    reply = client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    whole: dict[str, Any] = reply.json()
    options = {"include_usage": True}
    stream = client.post(path, json={**body, "stream": True, "stream_options": options})
    once = folded(events_of(stream))
    assert once["choices"] == whole["choices"]
    assert once["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    return whole


@pytest.mark.parametrize(
    ("fields", "other"), [r[1:] for r in REQUESTS], ids=[r[0] for r in REQUESTS]
)
@pytest.mark.parametrize("n", [1, 2])
def test_a_completion_is_what_the_engine_gives_in_process(
    client: httpx.Client, llm: LLM, fields: dict[str, Any], other: dict[str, Any], n: int
) -> None:
    asked = {**BASE, **fields}
    reply = ask(client, prompt="once upon", n=n, return_token_ids=True, **asked)
    stops = asked.pop("stop", ())
    asked.pop("bad_words", None)
    for name in ("samplers", "stop_token_ids"):
        if name in asked:
            asked[name] = tuple(asked[name])
    for choice in range(n):
        params = SamplingParams(**{**asked, **other, "choice": choice})
        (expected,) = llm.generate("once upon", params, stop=stops)
        got = reply["choices"][choice]
        assert tuple(got["token_ids"]) == expected.token_ids
        assert got["text"] == expected.text
        assert got["finish_reason"] == expected.finish_reason
        assert got["stop_reason"] == expected.stop_reason
        if expected.logprobs is not None:
            logprobs = [floored(one.logprob) for one in expected.logprobs]
            assert got["logprobs"]["token_logprobs"] == logprobs
        if expected.prompt_logprobs is not None and choice == 0:
            assert got["prompt_logprobs"][0] is None
            for told, one in zip(got["prompt_logprobs"], expected.prompt_logprobs, strict=True):
                if one is not None:
                    entry = told[str(one.token_id)]
                    assert (entry["logprob"], entry["rank"]) == (one.logprob, one.rank)
    if n == 2 and "temperature" not in fields:
        first, second = (one["token_ids"] for one in reply["choices"])
        assert first != second, "each has a random stream of its own"


@pytest.mark.process
def test_a_conversation_of_several_choices(client: httpx.Client, llm: LLM) -> None:
    messages = [{"role": "user", "content": "hi"}]
    body = {**BASE, "frequency_penalty": 1.0, "n": 3, "return_token_ids": True}
    reply = ask(client, "/v1/chat/completions", messages=messages, **body)
    for choice in range(3):
        params = SamplingParams(**BASE, frequency_penalty=1.0, choice=choice)
        expected = llm.chat(messages, params)
        assert tuple(reply["choices"][choice]["token_ids"]) == expected.token_ids
        assert reply["choices"][choice]["message"]["content"] == expected.text


def test_scoring_a_text(client: httpx.Client, llm: LLM) -> None:
    """echo with max_tokens 0: log probabilities as when the same tokens are generated."""
    generated = llm.generate(
        "abc", SamplingParams(temperature=0, max_tokens=8, logprobs=0, ignore_eos=True)
    )[0]
    assert generated.logprobs is not None
    ids = [*b"abc", *generated.token_ids]
    body = {"prompt": ids, "echo": True, "max_tokens": 0, "logprobs": 1}
    choice = ask(client, **body, return_token_ids=True)["choices"][0]
    scores = choice["logprobs"]["token_logprobs"]
    assert scores[0] is None
    assert len(scores) == len(ids)
    assert scores[3:] == [one.logprob for one in generated.logprobs]


def test_the_likeliest_of_several(client: httpx.Client) -> None:
    body = {**BASE, "prompt": "abc", "logprobs": 0, "return_token_ids": True}
    every = client.post("/v1/completions", json={**body, "n": 4}).json()
    best = client.post("/v1/completions", json={**body, "n": 2, "best_of": 4}).json()

    def mean(choice: Any) -> float:
        logprobs = choice["logprobs"]["token_logprobs"]
        return float(sum(logprobs) / len(logprobs))

    expected = sorted(every["choices"], key=mean, reverse=True)[:2]
    assert [one["token_ids"] for one in best["choices"]] == [one["token_ids"] for one in expected]
    assert best["usage"]["completion_tokens"] == 4 * BASE["max_tokens"]


def test_choices_share_the_blocks_of_their_prompt(client: httpx.Client) -> None:
    body = {**BASE, "prompt": "z" * 80, "n": 4, "cache_salt": "fresh", "return_metrics": True}
    reply = client.post("/v1/completions", json=body).json()
    cached = sorted(one["metrics"]["cached_tokens"] for one in reply["choices"])
    assert cached[0] == 0
    assert all(tokens == 64 for tokens in cached[1:]), cached
    assert reply["usage"]["prompt_tokens"] == 80
    assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_deadline_ends_a_request_with_what_it_has(client: httpx.Client, stream: bool) -> None:
    body = {
        "prompt": "abc", "max_tokens": 120, "ignore_eos": True, "timeout_s": 0.02, "n": 2,
        "return_token_ids": True, "stream": stream,
    }  # fmt: skip
    reply = client.post("/v1/completions", json=body)
    whole = folded(events_of(reply)) if stream else reply.json()
    assert [one["finish_reason"] for one in whole["choices"]] == ["timeout"] * 2
    assert all(len(one["token_ids"]) < 120 for one in whole["choices"])


def test_what_the_engine_refuses_is_a_400(client: httpx.Client) -> None:
    reply = client.post("/v1/completions", json={"prompt": "abc", "priority": 3})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "priority"
