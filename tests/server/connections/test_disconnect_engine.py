"""A client that goes away, over a real engine: its request ends within a step, its blocks are free.

Queued behind another, in the middle of a long prefill, and while streaming; for whole replies and
streams. What is left is read from the metrics a scheduler of clusters would read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.connections.raw import RawClient, post, until
from tests.server.serve_process import Process, spawn
from tests.tiny import write_tiny_gguf

CONTEXT = 4096
PROMPTLY_S = 5.0  # a step takes milliseconds


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One request at a time, 16 tokens a step: a long prompt takes hundreds of steps."""
    folder = tmp_path_factory.mktemp("model")
    model = write_tiny_gguf(folder, family="qwen3", max_positions=CONTEXT)
    process = spawn(
        model, max_num_seqs=1, max_num_batched_tokens=16, enable_prefix_caching=False,
        max_model_len=CONTEXT,
    ).wait_ready()  # fmt: skip
    yield process
    code, err = process.end()
    assert code == 0, err
    assert "Traceback" not in err


def gauges(server: Process) -> dict[str, float]:
    lines = httpx.get(f"{server.url}/metrics", timeout=10).text.splitlines()
    pairs = (line.rpartition(" ") for line in lines if line and line[0] != "#")
    return {name.partition("{")[0]: float(value) for name, _, value in pairs}


def aborted(server: Process) -> float:
    """How many requests were cut off; those that ended by themselves are not among them."""
    lines = httpx.get(f"{server.url}/metrics", timeout=10).text.splitlines()
    name = "vllm:request_success_total"
    found = [line for line in lines if line.startswith(name) and '"abort"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in found)


def running(server: Process) -> float:
    return gauges(server)["vllm:num_requests_running"]


def waiting(server: Process) -> float:
    return gauges(server)["vllm:num_requests_waiting"]


def idle(server: Process) -> bool:
    now = gauges(server)
    names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    return all(now[f"vllm:{name}"] == 0 for name in names)


LONG: dict[str, Any] = {"prompt": "abcdefgh" * (CONTEXT // 8 - 60), "max_tokens": 2}
ENDLESS: dict[str, Any] = {"prompt": "x", "max_tokens": CONTEXT - 10, "ignore_eos": True}
Body = dict[str, Any]


@pytest.mark.process
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("body", "computing"),
    [
        (LONG, lambda now: now["vllm:kv_cache_usage_perc"] > 0),
        (ENDLESS, lambda now: now["vllm:num_requests_running"] == 1),
    ],
    ids=["prefilling", "generating"],
)
def test_what_is_computed_ends(
    slow: Process, body: Body, stream: bool, computing: Callable[[dict[str, float]], bool]
) -> None:
    assert until(lambda: idle(slow))
    before = aborted(slow)
    with RawClient(slow.url) as client:
        client.send(post("/v1/completions", {**body, "stream": stream}))
        if body is ENDLESS and stream:
            client.until(b"data: ")
        assert until(lambda: computing(gauges(slow)))
    assert until(lambda: idle(slow), PROMPTLY_S)
    assert aborted(slow) == before + 1


@pytest.mark.process
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_what_waits_ends(slow: Process, stream: bool) -> None:
    assert until(lambda: idle(slow))
    before = aborted(slow)
    with RawClient(slow.url) as first:
        first.send(post("/v1/completions", {**ENDLESS, "stream": True}))
        first.until(b"data: ")
        with RawClient(slow.url) as queued:
            queued.send(post("/v1/completions", {**LONG, "stream": stream}))
            assert until(lambda: waiting(slow) == 1)
        assert until(lambda: waiting(slow) == 0, PROMPTLY_S)
        assert running(slow) == 1
        assert aborted(slow) == before + 1
        first.until(b"data: ")
    assert until(lambda: idle(slow), PROMPTLY_S)
    assert aborted(slow) == before + 2


def test_one_of_a_pipeline_ends_with_its_connection(slow: Process, tmp_path: Path) -> None:
    """Behind it a second one waits, which must never begin."""
    assert until(lambda: idle(slow))
    before = gauges(slow)["vllm:prompt_tokens_total"]
    with RawClient(slow.url) as client:
        client.send(post("/v1/completions", ENDLESS) + post("/v1/completions", LONG))
        assert until(lambda: running(slow) == 1)
    assert until(lambda: idle(slow), PROMPTLY_S)
    assert gauges(slow)["vllm:prompt_tokens_total"] - before <= 2
