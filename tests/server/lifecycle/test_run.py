"""Replies of `serve` as a process of its own: a real engine with a tiny model."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest

from headrace.engine.params import SamplingParams
from headrace.llm import LLM
from tests.server.serve_process import Process
from tests.tiny import write_tiny_hf

GREEDY = {"temperature": 0, "max_tokens": 12, "ignore_eos": True, "return_token_ids": True}


def test_whole_and_streamed_replies_are_the_same_text(running: Process, model: Path) -> None:
    client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
    whole = running.post("/v1/completions", prompt="Once", logprobs=2, **GREEDY).json()
    choice = whole["choices"][0]
    assert len(choice["token_ids"]) == 12
    assert choice["finish_reason"] == "length"
    assert len(choice["logprobs"]["tokens"]) == 12
    assert whole["usage"]["completion_tokens"] == 12
    pieces = client.completions.create(
        model=model.stem, prompt="Once", temperature=0, max_tokens=12, stream=True,
        extra_body={"ignore_eos": True},
    )  # fmt: skip
    assert "".join(piece.choices[0].text for piece in pieces) == choice["text"]


def test_a_conversation(running: Process, model: Path) -> None:
    client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
    reply = client.chat.completions.create(
        model=model.stem, messages=[{"role": "user", "content": "hi"}], max_tokens=4
    )
    assert reply.usage is not None
    assert 1 <= reply.usage.completion_tokens <= 4
    assert reply.system_fingerprint is not None
    assert reply.system_fingerprint.startswith("fp_")


@pytest.mark.process
def test_cached_tokens_are_told(running: Process) -> None:
    prompt = "a prompt that fills more than one block of the KV cache" * 3
    first = running.post("/v1/completions", prompt=prompt, **GREEDY).json()
    second = running.post("/v1/completions", prompt=prompt, **GREEDY).json()
    assert second["choices"][0]["token_ids"] == first["choices"][0]["token_ids"]
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= 128
    salted = running.post("/v1/completions", prompt=prompt, cache_salt="other", **GREEDY).json()
    assert salted["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


@pytest.mark.smoke
@pytest.mark.load
def test_a_short_load_gets_what_each_request_gets_alone(running: Process) -> None:
    prompts = [f"{number} bottles" for number in range(12)]

    def completed(prompt: str, client: httpx.Client) -> list[int]:
        reply = client.post("/v1/completions", json={"prompt": prompt, **GREEDY})
        assert reply.status_code == 200, reply.text
        ids: list[int] = reply.json()["choices"][0]["token_ids"]
        return ids

    with (
        httpx.Client(base_url=running.url, timeout=60, verify=False) as client,
        ThreadPoolExecutor(8) as users,
    ):
        alone = [completed(prompt, client) for prompt in prompts]
        together = list(users.map(lambda prompt: completed(prompt, client), prompts * 4))
        lines = client.get("/metrics").text.splitlines()
    assert together == alone * 4
    assert len({tuple(ids) for ids in alone}) > 1
    (running_requests,) = (line for line in lines if line.startswith("vllm:num_requests_running{"))
    assert float(running_requests.rpartition(" ")[2]) == 0


@pytest.mark.load
def test_seeds_hold(running: Process) -> None:
    fields = {"prompt": "Once", "max_tokens": 8, "return_token_ids": True, "ignore_eos": True}

    def ids(seed: int | None) -> list[int]:
        reply = running.post("/v1/completions", seed=seed, **fields).json()
        found: list[int] = reply["choices"][0]["token_ids"]
        return found

    assert ids(7) == ids(7)
    assert ids(-(2**63)) == ids(-(2**63))
    assert ids(2**63 - 1) == ids(2**63 - 1)
    assert ids(7) != ids(8)
    assert ids(None) != ids(None)


@pytest.mark.parametrize("seed", [-1, 2**63 - 1])
def test_a_seed_gives_the_same_tokens_over_http_and_in_process(
    running: Process, model: Path, seed: int
) -> None:
    llm = LLM(str(model), backend="reference")
    params = SamplingParams(seed=seed, max_tokens=8, ignore_eos=True)
    (here,) = llm.generate("Once", params)
    reply = running.post(
        "/v1/completions", prompt="Once", seed=seed, max_tokens=8, ignore_eos=True,
        return_token_ids=True,
    ).json()  # fmt: skip
    assert reply["choices"][0]["token_ids"] == list(here.token_ids)


def test_a_stop_string_frees_the_engine(running: Process) -> None:
    whole = running.post("/v1/completions", prompt="Once", **GREEDY).json()["choices"][0]["text"]
    stop = whole[3:5]
    reply = running.post(
        "/v1/completions", prompt="Once", stop=stop, **{**GREEDY, "max_tokens": 400}
    )
    choice = reply.json()["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["stop_reason"] == stop
    assert choice["text"] == whole[: whole.index(stop)]
    assert _becomes_idle(running)


def test_a_client_that_goes_away_frees_the_engine(running: Process) -> None:
    body = {"prompt": "Once", "max_tokens": 480, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{running.url}/v1/completions", json=body, timeout=30) as reply:
        next(reply.iter_lines())
    assert _becomes_idle(running)


def _becomes_idle(running: Process) -> bool:
    """Whether no request runs or waits and no block is owned, soon."""
    idle = {
        "vllm:num_requests_running": 0,
        "vllm:num_requests_waiting": 0,
        "vllm:kv_cache_usage_perc": 0,
    }
    for _ in range(100):
        lines = httpx.get(f"{running.url}/metrics").text.splitlines()
        now = {
            line.partition("{")[0]: float(line.rpartition(" ")[2])
            for line in lines
            if line[0] != "#"
        }
        if {name: now[name] for name in idle} == idle:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.process
def test_a_folder_and_a_file_give_the_same_text_but_say_which_they_are(
    started: Callable[..., Process], running: Process, tmp_path: Path
) -> None:
    folder = write_tiny_hf(tmp_path / "tiny", family="qwen3")
    template = tmp_path / "template.jinja"
    template.write_text("{{ messages[0].content }}")
    other = started(folder, served_model_name=["mine", "also"], chat_template=str(template))
    other.wait_ready()
    assert other.ready["model"] == "mine"
    mine = other.post("/v1/completions", prompt="Once", **GREEDY).json()
    theirs = running.post("/v1/completions", prompt="Once", **GREEDY).json()
    assert mine["choices"][0]["token_ids"] == theirs["choices"][0]["token_ids"]
    assert mine["system_fingerprint"] != ""
    messages = [{"role": "user", "content": "ab"}]
    tokens = other.post("/tokenize", messages=messages, model="also").json()["tokens"]
    assert tokens == [*b"ab"]
