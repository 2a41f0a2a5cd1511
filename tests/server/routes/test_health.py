"""/health follows the engine's loop; /metrics follows its figures and the requests."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace import __version__
from headrace.engine.messages import Loading, Output, Stats, Submit
from headrace.engine.process.status import EngineStatus
from headrace.errors import EngineDeadError
from headrace.server.lifecycle.loading_line import LoadingLine
from tests.server.conftest import MODEL, Running
from tests.server.mock_engine import INFO, MAX_MODEL_LEN, MockEngine, output, says

Start = Callable[..., Running]
DOCS = Path(__file__).resolve().parents[3] / "docs"
LABELS = f'{{engine="0",model_name="{MODEL}"}}'


def test_health_while_loading(start: Start) -> None:
    server = start(MockEngine(says("x")), loaded=False)
    reply = server.client.get("/health")
    assert reply.status_code == 503
    body = reply.json()
    assert body["status"] == "loading"
    assert body["uptime_s"] >= 0
    assert body["error"]["code"] == "loading"


def test_health_tells_how_far_loading_is(start: Start) -> None:
    server = start(MockEngine(says("x")), loaded=False)
    body = server.client.get("/health").json()
    assert (body["phase"], body["progress"]) == ("import", 0)
    server.state.loading = Loading("weights", 250, 1000)
    reply = server.client.get("/health")
    assert reply.status_code == 503
    assert (reply.json()["phase"], reply.json()["progress"]) == ("weights", 0.25)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_line_while_loading(is_terminal: bool) -> None:
    """Written over in a terminal and gone at the end; nothing at all in a file."""

    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

    line = LoadingLine(stream := Stream())
    line.wipe()
    assert stream.getvalue() == ""
    line.show(Loading("open"))
    line.show(Loading("weights", 500_000_000, 2_000_000_000))
    line.show(Loading("warm_up", 2_000_000_000, 2_000_000_000))
    line.wipe()
    written = stream.getvalue()
    if not is_terminal:
        assert written == ""
        return
    wiped = "\r\x1b[2K"
    said = ("loading: open", "loading: weights  25% of 2.00 GB", "loading: warm_up", "")
    assert written == "".join(f"{wiped}{text}" for text in said)


def test_health_follows_the_engine(start: Start) -> None:
    engine = MockEngine(says("x"))
    server = start(engine)
    reply = server.client.get("/health")
    assert (reply.status_code, reply.json()["status"]) == (200, "ok")
    engine.alive = False
    reply = server.client.get("/health")
    assert (reply.status_code, reply.json()["status"]) == (503, "dead")
    assert reply.json()["error"]["code"] == "engine_dead"


@dataclass
class WatchedMock(MockEngine):
    """A mock whose watch says what a test wants."""

    said: EngineStatus = field(default_factory=EngineStatus)

    @property
    def status(self) -> EngineStatus:
        return self.said


@pytest.mark.parametrize(
    ("said", "status", "code", "retry_after"),
    [
        (
            EngineStatus("restarting", 2, "it fell", 2.3, 0.5),
            "restarting",
            "engine_restarting",
            "3",
        ),
        (EngineStatus("stalled", 1, "it hangs", 0.2, 120.5), "stalled", "engine_restarting", "1"),
        (EngineStatus("failed", 5, "it fell"), "dead", "engine_dead", None),
    ],
)
def test_health_and_readiness_of_an_engine_that_does_not_serve(
    start: Start, said: EngineStatus, status: str, code: str, retry_after: str | None
) -> None:
    server = start(WatchedMock(says("x"), said=said))
    for path in ("/health", "/ready"):
        reply = server.client.get(path)
        body = reply.json()
        assert (reply.status_code, body["status"], body["error"]["code"]) == (503, status, code)
        assert (body["restarts"], body["failure"]) == (said.restarts, said.failure)
        assert body.get("silent_s", 0.0) == said.silent_s
        assert body.get("retry_after_s") == said.retry_after_s
        assert reply.headers.get("retry-after") == retry_after
        assert said.failure in body["error"]["message"]


def test_who_waited_for_an_engine_that_ended_is_told_when_the_next_serves(start: Start) -> None:
    async def dies(submit: Submit) -> AsyncIterator[Output]:
        engine.said = falls[-1]
        raise EngineDeadError("it fell")
        yield output(submit, [])

    falls: list[EngineStatus] = []
    engine = WatchedMock(dies)
    server = start(engine)
    for after, header in (
        (EngineStatus("restarting", 1, "it fell", 2.5), "3"),
        (EngineStatus("failed", 1, "it fell"), None),
    ):
        falls.append(after)
        engine.said = EngineStatus()
        reply = server.post("/v1/completions", {"prompt": "x"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "engine_dead")
        assert reply.headers.get("retry-after") == header


def test_ready_follows_model_and_end_while_health_follows_the_engine(start: Start) -> None:
    loading = start(MockEngine(says("x")), loaded=False)
    reply = loading.client.get("/ready")
    assert (reply.status_code, reply.json()["status"]) == (503, "loading")
    assert reply.headers["retry-after"] == "1"
    assert loading.post("/v1/completions", {"prompt": "x"}).headers["retry-after"] == "1"
    server = start(MockEngine(says("x")))
    reply = server.client.get("/ready")
    assert (reply.status_code, reply.json()["status"]) == (200, "ready")
    server.call(server.state.drain.begin)
    reply = server.client.get("/ready")
    assert (reply.status_code, reply.json()["status"]) == (503, "draining")
    assert reply.json()["error"]["code"] == "draining"
    assert server.client.get("/health").status_code == 200
    for path in ("/v1/completions", "/v1/chat/completions"):
        reply = server.post(path, {"prompt": "x"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "draining")
        assert (reply.headers["connection"], reply.headers["retry-after"]) == ("close", "5")
    for path in ("/v1/models", "/metrics", "/version"):
        assert server.client.get(path).status_code == 200


def test_the_version(start: Start) -> None:
    server = start(MockEngine(says("x")), loaded=False)
    assert server.client.get("/version").json() == {"version": __version__}


def test_metrics_before_the_model_is_loaded(start: Start) -> None:
    server = start(MockEngine(says("x")), loaded=False)
    server.client.get("/health")
    reply = server.client.get("/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain; version=")
    assert 'headrace:http_requests_total{endpoint="/health",status="503"} 1.0' in reply.text


def test_engine_metrics_are_the_engines_figures(start: Start) -> None:
    engine = MockEngine(says("x"))
    engine.stats = Stats(
        num_running=3, num_waiting=4, num_preempted=4, blocks_total=64, blocks_free=30,
        blocks_cached=18, blocks_owned=16, steps=7, step_s=0.125, step_tokens=9, prompt_tokens=100,
        generation_tokens=50, computed_tokens=140, prefix_queries_tokens=90,
        prefix_hits_tokens=40, num_preemptions=2, miss_reasons={"salt": 5},
        failed_steps=6, spec_draft_failures=3, kv_accounting_errors=8,
    )  # fmt: skip
    server = start(engine)
    samples = server.metrics()
    own = f'engine="0",model_name="{MODEL}"'
    for name, value in {
        f"vllm:num_requests_running{LABELS}": 3,
        f"vllm:num_requests_waiting{LABELS}": 4,
        f"vllm:kv_cache_usage_perc{LABELS}": 0.25,
        f"vllm:prefix_cache_queries_total{LABELS}": 90,
        f"vllm:prefix_cache_hits_total{LABELS}": 40,
        f"vllm:prompt_tokens_total{LABELS}": 100,
        f"vllm:generation_tokens_total{LABELS}": 50,
        f"vllm:num_preemptions_total{LABELS}": 2,
        f"headrace:engine_steps_total{LABELS}": 7,
        f"headrace:last_step_seconds{LABELS}": 0.125,
        f"headrace:last_step_tokens{LABELS}": 9,
        f"headrace:computed_tokens_total{LABELS}": 140,
        f"headrace:failed_steps_total{LABELS}": 6,
        f"headrace:spec_decode_draft_failures_total{LABELS}": 3,
        f"headrace:kv_accounting_errors_total{LABELS}": 8,
        f"headrace:engine_up{LABELS}": 1,
        f'headrace:kv_blocks{{{own},state="cached"}}': 18,
        f'headrace:prefix_cache_misses_total{{{own},reason="salt"}}': 5,
        f'headrace:load_seconds{{{own},phase="weights"}}': 0.5,
    }.items():
        assert samples[name] == value, name
    engine.alive = False
    after = server.metrics()
    gone = {name for name in samples if samples[name] != after[name] == 0}
    assert gone == {
        f"vllm:num_requests_running{LABELS}",
        f"vllm:num_requests_waiting{LABELS}",
        f'vllm:num_requests_waiting_by_reason{{{own},reason="capacity"}}',
        f"vllm:kv_cache_usage_perc{LABELS}",
        f"vllm:gpu_cache_usage_perc{LABELS}",
        f"headrace:engine_up{LABELS}",
        "headrace:ready",
        f"headrace:last_step_seconds{LABELS}",
        f"headrace:last_step_tokens{LABELS}",
        *(
            f'headrace:kv_blocks{{{own},state="{state}"}}'
            for state in ("free", "cached", "owned", "total")
        ),
    }
    assert samples.keys() <= after.keys()


def test_the_five_names_schedulers_read(start: Start) -> None:
    """llm-d and the Kubernetes inference gateway find these, with these labels."""
    text = start(MockEngine(says("x"))).client.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for name in ("num_requests_waiting", "num_requests_running", "kv_cache_usage_perc"):
        assert families[f"vllm:{name}"].type == "gauge"
    cache = families["vllm:cache_config_info"].samples[0]
    assert cache.labels["block_size"] == "16"
    assert cache.labels["num_gpu_blocks"] == "64"
    lora = families["vllm:lora_requests_info"].samples[0]
    assert {"max_lora", "running_lora_adapters", "waiting_lora_adapters"} <= set(lora.labels)


def test_request_metrics(start: Start) -> None:
    # The event loop's timers end up to a millisecond early: a tenth is allowed below.
    server = start(MockEngine(says("abcd", delay_s=0.02)))
    server.complete(prompt="x" * 12, max_tokens=30)
    server.complete(prompt="x" * 12, max_tokens=3)
    samples = server.metrics()

    def histogram(name: str) -> tuple[float, float]:
        return samples[f"vllm:{name}_count{LABELS}"], samples[f"vllm:{name}_sum{LABELS}"]

    def ended(reason: str) -> float:
        return samples[
            "vllm:request_success_total" + LABELS.replace(",", f',finished_reason="{reason}",')
        ]

    assert (ended("stop"), ended("length"), ended("abort"), ended("error")) == (1, 1, 0, 0)
    assert histogram("request_prompt_tokens") == (2, 24)
    assert histogram("request_generation_tokens") == (2, 5 + 3)
    assert histogram("request_params_max_tokens") == (2, 33)
    assert histogram("request_queue_time_seconds") == (2, 0.5)
    assert histogram("request_prefill_time_seconds") == (2, 1.0)
    count, first_s = histogram("time_to_first_token_seconds")
    assert count == 2
    assert first_s >= 0.9 * 0.04
    count, between_s = histogram("inter_token_latency_seconds")
    assert count == 4 + 2
    assert between_s >= 0.9 * 0.1
    assert histogram("request_decode_time_seconds")[1] >= 0.9 * 0.1
    assert histogram("request_inference_time_seconds")[1] >= 1 + 0.9 * 0.1
    assert histogram("request_time_per_output_token_seconds")[0] == 2
    assert histogram("e2e_request_latency_seconds")[1] >= first_s + between_s


def test_buckets_are_vllms(start: Start) -> None:
    text = start(MockEngine(says("x"))).client.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}

    def bounds(name: str) -> list[float]:
        samples = families[f"vllm:{name}"].samples
        return [float(s.labels["le"]) for s in samples if s.name.endswith("_bucket")][:-1]

    assert bounds("time_to_first_token_seconds")[:4] == [0.001, 0.005, 0.01, 0.02]
    assert bounds("time_to_first_token_seconds")[-1] == 2560
    assert bounds("inter_token_latency_seconds")[0] == 0.01
    assert bounds("e2e_request_latency_seconds")[-1] == 7680
    assert bounds("request_prompt_tokens") == [1, 2, 5, 10, 20, 50, 100, 200]
    assert bounds("request_prompt_tokens")[-1] <= MAX_MODEL_LEN


def test_paths_of_clients_are_no_labels(start: Start) -> None:
    server = start(MockEngine(says("x")))
    for index in range(5):
        server.client.get(f"/nothing/{index}")
        server.client.get(f"/v1/models/{index}")
    name = "headrace:http_requests_total"
    assert {sample for sample in server.metrics() if sample.startswith(name)} == {
        name + '{endpoint="other",status="404"}',
        name + '{endpoint="/v1/models/{model:path}",status="404"}',
    }


def documented(text: str) -> dict[str, tuple[str, str]]:
    """Name → (kind, meaning) of the rows of docs/metrics.md's tables."""
    rows: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        if line.startswith("| `"):
            name, kind, meaning = [cell.strip() for cell in line.strip("|").split("|")][:3]
            rows[name.strip("`")] = (kind, meaning)
    return rows


def _families(server: Running) -> dict[str, Any]:
    server.client.get("/health")
    text = server.client.get("/metrics").text
    return {
        family.name: family
        for family in text_string_to_metric_families(text)
        if not family.name.endswith("_created")
    }


MEASURED = msgspec.structs.replace(
    INFO,
    read_limit_bytes_per_s=4e6,
    compute_limit_ops_per_s=1e8,
    compute_limit_kind="int8",
    attention_limit_ops_per_s=5e7,
    expert_cache_bytes=1 << 20,
)
A_STEP = Stats(
    step_s=0.5,
    step_bytes=1_000_000,
    step_operations=10_000_000,
    step_attention_operations=5_000_000,
)


def test_shares_of_the_machine_are_there_where_it_was_measured(start: Start) -> None:
    names = ("headrace:last_step_mbu", "headrace:last_step_mfu")
    for info, stats in ((INFO, A_STEP), (MEASURED, Stats())):
        samples = start(MockEngine(says("x"), info=info, stats=stats)).metrics()
        assert not any(sample.startswith(names) for sample in samples), "absent, never 0"
    samples = start(MockEngine(says("x"), info=MEASURED, stats=A_STEP)).metrics()
    # 5 million operations of products at 100 million a second, as many of attention at 50: 0.15 s.
    assert [samples[name + LABELS] for name in names] == [0.5, pytest.approx(0.3)]


def test_every_metric_is_documented_and_every_documented_one_exists(start: Start) -> None:
    families = _families(start(MockEngine(says("x"), info=MEASURED, stats=A_STEP)))
    rows = documented((DOCS / "metrics.md").read_text(encoding="utf-8"))
    served = {
        family.name + ("_total" if family.type == "counter" else ""): family.type
        for family in families.values()
    }
    assert set(rows) == set(served)
    for name, kind in served.items():
        assert rows[name][0] == kind, name


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_what_cannot_be_served_is_told_before_the_body_is_looked_at(
    start: Start, path: str
) -> None:
    loading = start(MockEngine(says("x")), loaded=False)
    reply = loading.client.post(path, content=b"no JSON at all")
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "loading")
    assert loading.post(path, {}).json()["error"]["code"] == "loading"
    restarting = start(WatchedMock(says("x"), said=EngineStatus("restarting", 1, "it fell", 6.2)))
    for body in (b"no JSON at all", b"{" + b" " * 2**20):
        reply = restarting.client.post(path, content=body)
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "engine_restarting")
        assert reply.headers["retry-after"] == "7"
    assert restarting.client.get("/v1/models").status_code == 200, "on the same connection"
    assert restarting.state.admission.num_queued == 0
