"""The file that vLLM's own scripts read: its keys, and its figures worked out by hand."""

from __future__ import annotations

import json

import pytest

from headrace.bench.record import Failure, RunMetadata, RunRecord
from headrace.bench.slo import parse_slo
from headrace.bench.vllm_form import VllmForm
from headrace.bench.vllm_result import vllm_keys, vllm_result
from tests.bench.streams import IDLE, run, steady, stream

FOUR = ("ttft", "tpot", "itl", "e2el")

RUN = run(
    steady(3, 100, 50, start_ms=0, index=0, client_prompt_tokens=7),
    stream(
        (510, "role", ""),
        (600, "text", "ab"),
        (610, "other", ""),
        sent_ms=500,
        intended_ms=450,
        end_ms=1000,
        tokens=2,
        index=1,
    ),
    stream(end_ms=2000, failure=Failure("timeout", "2 s passed"), index=2),
    steady(9, 1, 1, index=3, measured=False),
)


def test_the_keys_that_plotting_scripts_read() -> None:
    got = vllm_result(RUN, form=VllmForm(percentiles=(50, 99, 99.9)))
    statistics = {
        f"{what}_{metric}_ms"
        for metric in FOUR
        for what in ("mean", "median", "std", "p50", "p99", "p99.9")
    }
    assert set(got) == statistics | {
        "num_prompts",
        "duration",
        "completed",
        "failed",
        "total_input_tokens",
        "total_output_tokens",
        "request_throughput",
        "request_goodput",
        "output_throughput",
        "total_token_throughput",
        "max_output_tokens_per_s",
        "max_concurrent_requests",
    }
    assert json.loads(json.dumps(got)) == got


def test_of_completions_the_empty_event_at_the_end_counts() -> None:
    record = stream((100, "text", "a"), (150, "text", "b"), (170, "other", ""), tokens=2)
    chat = RunRecord(about={}, requests=(record,), health=IDLE)
    assert vllm_result(chat)["mean_e2el_ms"] == pytest.approx(150)
    plain = RunRecord(
        about={"endpoint_kind": "openai-completions"}, requests=(record,), health=IDLE
    )
    assert vllm_result(plain)["mean_e2el_ms"] == pytest.approx(170)


def test_keys_of_the_command_line() -> None:
    about: RunMetadata = {"started": "2026-11-22", "endpoint_kind": "openai-chat", "model": "m"}
    assert vllm_keys(about, rate=None, concurrency=8) == {
        "date": "2026-11-22",
        "endpoint_type": "openai-chat",
        "model_id": "m",
        "tokenizer_id": None,
        "request_rate": "inf",
        "max_concurrency": 8,
    }


def test_figures_by_hand() -> None:
    got = vllm_result(RUN)
    assert (got["duration"], got["completed"], got["failed"]) == (2.0, 2, 1)
    assert (got["total_input_tokens"], got["total_output_tokens"]) == (7, 5)
    assert (got["request_throughput"], got["output_throughput"]) == (1.0, 2.5)
    assert got["total_token_throughput"] == 6.0
    assert got["mean_ttft_ms"] == pytest.approx(100)  # the role is no token
    assert got["mean_tpot_ms"] == pytest.approx(25)  # 100 / 2 and 0 / 1
    assert got["mean_itl_ms"] == pytest.approx(50)  # 50, 50
    assert got["mean_e2el_ms"] == pytest.approx(150)  # 200 and 100
    assert got["max_output_tokens_per_s"] == 4.0 and got["max_concurrent_requests"] == 1


def test_goodput_as_vllm_judges_it() -> None:
    assert vllm_result(RUN)["request_goodput"] is None
    assert vllm_result(RUN, slo=parse_slo("ttft:50"))["request_goodput"] == 0
    assert vllm_result(RUN, slo=parse_slo("ttft:100 tpot:49"))["request_goodput"] == 0.5
    assert vllm_result(RUN, slo=parse_slo("ttft:100 stall:5"))["request_goodput"] is None


def test_details_of_each_request() -> None:
    got = vllm_result(RUN, form=VllmForm(detailed=True))
    assert got["input_lens"] == [7, 0, 0] and got["output_lens"] == [3, 2, 0]
    assert got["ttfts"] == [0.1, 0.1, 0.0]
    assert got["itls"] == [[0.05, 0.05], [], []]
    assert got["latencies"] == [0.2, 0.1, 0.0]
    assert got["start_times"] == [0.0, 0.5, 0.0] and got["queue_times"] == [0.0, 0.05, 0.0]
    assert got["generated_texts"] == [" a a a", "ab", ""]
    assert got["errors"] == ["", "", "2 s passed"]


def test_a_run_in_which_nothing_completed() -> None:
    got = vllm_result(
        run(stream(end_ms=0, failure=Failure("http", "503"))), form=VllmForm(detailed=True)
    )
    assert (got["completed"], got["request_throughput"], got["mean_ttft_ms"]) == (0, 0.0, 0.0)
    assert got["max_output_tokens_per_s"] == 0.0
    unsent = vllm_result(
        run(stream(sent_ms=None, failure=Failure("connect", "refused"))),
        form=VllmForm(detailed=True),
    )
    assert unsent["start_times"] == [0.0]


def test_statistics_of_the_metrics_that_were_asked_for() -> None:
    got = vllm_result(run(steady(3, 10, 5)), form=VllmForm(metrics=("ttft", "e2el")))
    assert "median_ttft_ms" in got and "p99_e2el_ms" in got
    assert not any("tpot" in key or "itl" in key for key in got)
