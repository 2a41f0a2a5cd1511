"""A scripted workload on a real engine, and then every figure of /metrics against the replies.

What the client saw (usage, finish reasons, `metrics` of each choice, statuses) is added up and has
to be what counters, histograms and the request log say.
"""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.serve_process import Process

pytestmark = pytest.mark.process

NAME = "tiny"
LABELS = f'engine="0",model_name="{NAME}"'
SLOTS, BLOCKS, BLOCK_TOKENS, MODEL_LEN = 2, 42, 16, 512
LONG = MODEL_LEN - 50


@dataclass
class Seen:
    """What the client was told, added up."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    misses: Counter[str] = field(default_factory=Counter)
    prompts: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    """Tokens of each choice."""
    choices: list[dict[str, Any]] = field(default_factory=list)
    """`metrics` of each choice."""
    asked: list[int] = field(default_factory=list)
    """n of each prompt."""
    max_tokens: list[int] = field(default_factory=list)
    longest: list[int] = field(default_factory=list)

    def total(self, name: str) -> float:
        return sum(choice[name] for choice in self.choices if choice.get(name) is not None)


class Client:
    """Sends the workload and adds up what comes back."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.seen = Seen()

    def complete(self, prompt: str, max_tokens: int, *, n: int = 1, **fields: Any) -> Any:
        body = {
            "prompt": prompt,
            "max_tokens": max_tokens,
            "n": n,
            "ignore_eos": True,
            "temperature": 0.8,
            "seed": 1,
            "return_metrics": True,
            "return_token_ids": True,
            # Drafts that are not accepted are computed too.
            "speculation": False,
            **fields,
        }
        reply = httpx.post(f"{self.url}/v1/completions", json=body, timeout=60)
        self.seen.statuses["/v1/completions", reply.status_code] += 1
        if reply.status_code == 200:
            self._note(reply.json(), max_tokens, n)
        return reply

    def _note(self, reply: Any, max_tokens: int, n: int) -> None:
        seen, usage = self.seen, reply["usage"]
        lengths = [len(choice["token_ids"]) for choice in reply["choices"]]
        assert sum(lengths) == usage["completion_tokens"]
        seen.asked.append(n)
        seen.longest.append(max(lengths))
        for choice, length in zip(reply["choices"], lengths, strict=True):
            seen.reasons[choice["finish_reason"]] += 1
            seen.choices.append(choice["metrics"])
            seen.outputs.append(length)
            seen.prompts.append(usage["prompt_tokens"])
            seen.max_tokens.append(max_tokens)
            if choice["metrics"].get("cache_miss"):
                seen.misses[choice["metrics"]["cache_miss"].split(" at ")[0]] += 1

    def metrics(self, settled: Callable[[Metrics], bool]) -> Metrics:
        """The samples, once they say what the engine's last report is known to say."""
        for _ in range(200):
            found = Metrics(httpx.get(f"{self.url}/metrics").text)
            if settled(found):
                return found
            time.sleep(0.02)
        raise AssertionError("the metrics never said it")


class Metrics:
    def __init__(self, text: str) -> None:
        lines = [line.rpartition(" ") for line in text.splitlines() if line and line[0] != "#"]
        self._samples: dict[tuple[str, frozenset[str]], float] = {}
        for name, _, value in lines:
            head, _, labels = name.partition("{")
            key = head, frozenset(labels.rstrip("}").split(",")) - {""}
            assert key not in self._samples, name
            self._samples[key] = float(value)

    def __call__(self, name: str, **labels: str) -> float:
        own = frozenset(f'{key}="{value}"' for key, value in labels.items())
        for extra in (frozenset(LABELS.split(",")), frozenset()):
            if (name, own | extra) in self._samples:
                return self._samples[name, own | extra]
        raise AssertionError(f"{name} {labels} is not there")


@pytest.fixture
def process(model: Path, started: Callable[..., Process]) -> Process:
    return started(
        model,
        served_model_name=(NAME,),
        max_num_seqs=SLOTS,
        num_gpu_blocks_override=BLOCKS,
        block_size=BLOCK_TOKENS,
        max_model_len=MODEL_LEN,
        max_num_queued_reqs=3,
        enable_log_requests=True,
        log_format="json",
        status_interval=0.1,
    ).wait_ready()


def test_every_figure_is_what_the_replies_say(process: Process) -> None:
    client = Client(process.url)
    seen = client.seen
    _one_after_another(client)
    quiet = client.metrics(lambda now: now("headrace:computed_tokens_total") >= _computed(seen))
    assert quiet("headrace:computed_tokens_total") == _computed(seen)
    assert quiet("vllm:num_preemptions_total") == 0

    gone = _under_pressure(client)
    busy = client.metrics(lambda now: now("vllm:num_requests_running") == 0)
    code, log = process.end()
    assert code == 0, log
    _check_requests(busy, seen, gone)
    _check_engine(busy, seen)
    _check_server(busy, seen)
    _check_log(log, seen, gone)


def _one_after_another(client: Client) -> None:
    """No two at once, so that nothing but the prompts decides what is computed."""
    shared = "s" * 80
    client.complete(shared + "one", 7)
    client.complete(shared + "one", 7)
    client.complete(shared + "two", 5)
    client.complete(shared + "one", 4, cache_salt="other")
    client.complete("n choices " * 5, 6, n=2)
    client.complete("x", 1)
    client.complete("too long " * 200, 5)
    client.complete("x", 3, temperature=-1)


def _under_pressure(client: Client) -> list[int]:
    """More than the pool holds, more than may wait, one that goes, one whose time is over.

    Gives the prompt tokens of those the client gave up while they waited.
    """
    with ThreadPoolExecutor(8) as pool:
        long = [pool.submit(client.complete, f"{i}" * 50, LONG) for i in range(SLOTS)]
        _wait_until(client, "vllm:num_requests_running", SLOTS)
        refused = client.complete("many", 3, n=4)
        assert refused.status_code == 429, refused.text
        gone = "gone " * 6
        body = json.dumps({"prompt": gone, "max_tokens": 9}).encode()
        host, _, port = client.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as connection:
            head = (
                f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}"
            )
            connection.sendall(head.encode() + b"\r\n\r\n" + body)
            _wait_until(client, "vllm:num_requests_waiting_by_reason", 1, reason="capacity")
        client.seen.statuses["/v1/completions", 499] += 1
        _wait_until(client, "vllm:num_requests_waiting", 0)
        timed = pool.submit(client.complete, "late " * 9, 200, timeout_s=0.02)
        for work in (*long, timed):
            work.result()
    client.complete("the time is over while it runs", 200, timeout_s=0.05)
    return [len(gone)]


def _wait_until(client: Client, name: str, value: float, **labels: str) -> None:
    client.metrics(lambda now: now(name, **labels) == value)


def _computed(seen: Seen) -> int:
    """Tokens of prompts that were not cached, and every output token but the last of each."""
    return int(sum(seen.prompts) - seen.total("cached_tokens") + sum(seen.outputs)) - len(
        seen.outputs
    )


def _check_requests(now: Metrics, seen: Seen, gone: list[int]) -> None:
    count = len(seen.outputs)
    started = [choice for choice in seen.choices if choice.get("ttft_s") is not None]
    for reason in ("stop", "length", "timeout"):
        name = "vllm:request_success_total"
        assert now(name, finished_reason=reason) == seen.reasons[reason], reason
    assert seen.reasons["timeout"] == 2
    assert now("vllm:request_success_total", finished_reason="abort") == len(gone)
    assert now("vllm:request_success_total", finished_reason="error") == 0
    exact = {
        "request_prompt_tokens": (count + len(gone), sum(seen.prompts) + sum(gone)),
        "request_generation_tokens": (count + len(gone), sum(seen.outputs)),
        "request_params_max_tokens": (count + len(gone), sum(seen.max_tokens) + 9),
        "request_params_n": (len(seen.asked) + len(gone), sum(seen.asked) + len(gone)),
        "request_max_num_generation_tokens": (len(seen.asked) + len(gone), sum(seen.longest)),
        "request_num_preemptions": (count + len(gone), seen.total("num_preemptions")),
        "request_prefill_kv_computed_tokens": (
            len(started),
            sum(
                prompt - choice["cached_tokens"]
                for prompt, choice in zip(seen.prompts, seen.choices, strict=True)
                if choice in started
            ),
        ),
    }
    for name, (number, total) in exact.items():
        assert now(f"vllm:{name}_count") == number, name
        assert now(f"vllm:{name}_sum") == total, name
    for name, key in {
        "time_to_first_token_seconds": "ttft_s",
        "request_prefill_time_seconds": "prefill_s",
    }.items():
        assert now(f"vllm:{name}_sum") == pytest.approx(seen.total(key), abs=1e-4), name
    # Replies have the time of the engine's steps, metrics the time from one arrival to the next.
    decode = ("request_decode_time", "inter_token_latency", "time_per_output_token")
    sums = [now(f"vllm:{name}_seconds_sum") for name in decode]
    assert sums == pytest.approx([sums[0]] * 3, abs=1e-4)
    assert sums[0] == pytest.approx(seen.total("decode_s"), rel=0.1)
    assert now("vllm:time_to_first_token_seconds_count") == len(started)
    queued = [choice for choice in seen.choices if choice.get("queue_s") is not None]
    assert now("vllm:request_queue_time_seconds_count") == len(queued)
    assert now("vllm:request_queue_time_seconds_sum") == pytest.approx(
        seen.total("queue_s"), abs=1e-4
    )
    assert now("vllm:e2e_request_latency_seconds_count") == count + len(gone)
    inference_s = seen.total("prefill_s") + sums[0]
    assert now("vllm:request_inference_time_seconds_sum") == pytest.approx(inference_s, abs=1e-4)


def _check_engine(now: Metrics, seen: Seen) -> None:
    ran = [
        (prompt, choice)
        for prompt, choice in zip(seen.prompts, seen.choices, strict=True)
        if choice.get("queue_s") is not None
    ]
    prompts, cached = sum(prompt for prompt, _ in ran), seen.total("cached_tokens")
    assert cached > 0
    assert now("vllm:prompt_tokens_total") == prompts
    assert now("vllm:prefix_cache_queries_total") == prompts
    assert now("vllm:prefix_cache_hits_total") == cached == now("vllm:prompt_tokens_cached_total")
    source = "vllm:prompt_tokens_by_source_total"
    assert now(source, source="local_cache_hit") == cached
    assert now(source, source="local_compute") == prompts - cached
    assert now("vllm:generation_tokens_total") == sum(seen.outputs)
    preemptions = seen.total("num_preemptions")
    assert preemptions > 0
    assert now("vllm:num_preemptions_total") == preemptions
    assert now("headrace:preemptions_total", reason="blocks") == preemptions
    assert now("headrace:preemptions_total", reason="priority") == 0
    assert now("headrace:request_timeouts_total") == seen.reasons["timeout"]
    for reason, number in seen.misses.items():
        assert now("headrace:prefix_cache_misses_total", reason=reason) == number, reason
    assert now("headrace:computed_tokens_total") >= _computed(seen)
    steps = now("headrace:engine_steps_total")
    assert steps == now("headrace:step_seconds_count") == now("vllm:iteration_tokens_total_count")
    assert steps == now("headrace:step_seconds_bucket", le="+Inf")
    assert now("vllm:iteration_tokens_total_sum") == now("headrace:computed_tokens_total")
    assert 0 < now("headrace:step_seconds_sum") < 60
    assert now("headrace:kv_blocks", state="owned") == 0
    assert now("headrace:kv_blocks", state="total") == BLOCKS
    for name in ("failed_steps", "kv_accounting_errors"):
        assert now(f"headrace:{name}_total") == 0


def _check_server(now: Metrics, seen: Seen) -> None:
    for (endpoint, status), number in seen.statuses.items():
        name = "headrace:http_requests_total"
        assert now(name, endpoint=endpoint, status=str(status)) == number, status
    assert now("headrace:admission_refused_total", reason="requests") == 4
    assert now("headrace:admission_refused_total", reason="tokens") == 0
    assert now("headrace:admission_max_queued_requests") == 3
    for name in ("admission_queued_requests", "admission_queued_tokens"):
        assert now(f"headrace:{name}") == 0
    assert now("headrace:ready") == now("headrace:engine_up") == 1
    assert now("headrace:engine_restarts_total", reason="died") == 0


def _check_log(log: str, seen: Seen, gone: list[int]) -> None:
    """Every line is an object; lines of calls add up to the same, and the status line was there."""
    lines = [json.loads(line) for line in log.splitlines()]
    calls = [line for line in lines if line["logger"] == "headrace.access"]
    assert Counter(call["status"] for call in calls) == Counter(
        {status: number for (_, status), number in seen.statuses.items()}
    )
    assert sum(call.get("output_tokens", 0) for call in calls) == sum(seen.outputs)
    assert sum(call.get("preemptions", 0) for call in calls) == seen.total("num_preemptions")
    (aborted,) = [call for call in calls if call["status"] == 499]
    assert aborted["finish_reason"] == "abort" and "ttft_s" not in aborted
    assert aborted["prompt_tokens"] == gone[0]
    assert {call["finish_reason"] for call in calls if call["status"] == 200} <= {
        "length",
        "timeout",
    }
    told = [line["message"] for line in lines if line["logger"] == "headrace.status"]
    assert any(f"running {SLOTS}" in message for message in told)
    assert not any(line["logger"] == "uvicorn.access" for line in lines)
