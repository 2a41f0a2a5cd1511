"""Flags of other load generators: what they mean here, and which are refused with our name."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from headrace.bench.cost import Prices
from headrace.bench.load.load_options import LoadOptions, with_default_end
from headrace.bench.load.prompt_options import PromptOptions
from headrace.cli.bench.load.command import load
from headrace.cli.bench.load.load_command import ELSEWHERE
from headrace.cli.bench.load.setup import load_of, prices_of, prompts_of, settle
from headrace.errors import ConfigError
from tests.cli.bench.test_load import mock, run


def given(line: str) -> dict[str, Any]:
    """The options as the command would take them."""
    found = dict(load.make_context("load", shlex.split(line)).params)
    settle(found)
    return found


def when(line: str) -> LoadOptions:
    found = given(line)
    return with_default_end(load_of(found), trace=found["trace"] is not None)


def what(line: str) -> PromptOptions:
    return prompts_of(given(line))


def test_vllm_bench_serve() -> None:
    found = given(
        "--backend openai-chat --base-url http://h:1 --endpoint /v1/chat/completions --model m "
        "--dataset-name random --num-prompts 7 --request-rate 3 --burstiness 0.5 "
        "--max-concurrency 9 --random-input-len 100 --random-output-len 20 "
        "--random-range-ratio 0.1 --random-prefix-len 30 --ignore-eos --num-warmups 2 --seed 4 "
        "--goodput ttft:500 tpot:50 e2el:3000 --percentile-metrics ttft,e2el "
        "--metric-percentiles 90,99 --save-detailed --result-dir out --disable-tqdm "
        """--extra-body '{"top_p":0.9}' --header x-team=search"""
    )
    options, prompts = load_of(found), prompts_of(found)
    assert (options.requests, options.rate, options.concurrency) == (7, 3.0, 9)
    assert (options.arrivals, options.burstiness, options.warmup_requests) == ("gamma", 0.5, 2)
    assert (prompts.input_tokens, prompts.output_tokens) == ("90..110", "18..22")
    assert (prompts.prefix_tokens, prompts.seed) == ("30", 4)
    assert prompts.request.ignore_eos and prompts.request.extra_body == {"top_p": 0.9}
    assert found["goodput"] == ("ttft:500", "tpot:50", "e2el:3000")
    assert found["percentiles"] == (90.0, 99.0)
    assert found["percentile_metrics"] == ("ttft", "e2el")
    assert found["save"] == Path("out") and found["quiet"] and found["detailed"]


def test_a_ramp_of_vllm() -> None:
    options = when("--ramp-up-strategy exponential --ramp-up-start-rps 2 --ramp-up-end-rps 32")
    assert (options.ramp_from, options.rate, options.ramp_shape) == (2.0, 32.0, "exponential")


def test_aiperf_and_genai_perf() -> None:
    found = given(
        "-m m -u http://h:1 --endpoint-type completions --streaming --concurrency 5 "
        "--num-requests 50 --warmup-request-count 3 --isl 200 --isl-stddev 20 --osl 64 "
        "--output-tokens-stddev 8 --random-seed 9 --benchmark-grace-period 4 "
        "--num-prefix-prompts 3 --prefix-prompt-length 40 --artifact-dir art "
        "--extra-inputs temperature:0.5 --extra-inputs user:me "
        "--request-timeout-seconds 30 "
        "--goodput 'time_to_first_token:100 inter_token_latency:10'"
    )
    options, prompts = load_of(found), prompts_of(found)
    assert (options.concurrency, options.requests, options.grace_s) == (5, 50, 4.0)
    assert (found["kind"], found["timeout_s"], found["model"]) == ("completions", 30.0, "m")
    assert prompts.input_tokens == "normal(200,20.000000)"
    assert prompts.output_tokens == "normal(64,8.000000)"
    assert (prompts.prefix_tokens, prompts.prefixes) == ("40", 3)
    assert prompts.request.extra_body == {"temperature": 0.5, "user": "me"}
    assert found["goodput"] == ("time_to_first_token:100 inter_token_latency:10",)


def test_llmperf() -> None:
    found = given(
        "--model m --mean-input-tokens 550 --stddev-input-tokens 150 --mean-output-tokens 150 "
        "--stddev-output-tokens 0 --max-num-completed-requests 5 --num-concurrent-requests 3 "
        """--results-dir out --additional-sampling-params '{"top_k":4}'"""
    )
    prompts = prompts_of(found)
    assert (prompts.input_tokens, prompts.output_tokens) == ("normal(550,150.000000)", "150")
    assert (load_of(found).concurrency, load_of(found).requests) == (3, 5)
    assert prompts.request.extra_body == {"top_k": 4}


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ("--profile synchronous", {"concurrency": 1, "rate": None}),
        ("--profile concurrent --rate 16", {"concurrency": 16, "rate": None}),
        ("--rate-type throughput", {"concurrency": None, "rate": math.inf}),
        ("--profile throughput --rate 32", {"concurrency": 32, "rate": math.inf}),
        ("--profile constant --rate 2.5", {"rate": 2.5, "arrivals": "constant"}),
        ("--profile async --rate 2", {"rate": 2.0, "arrivals": "constant"}),
        ("--profile poisson --rate 2", {"rate": 2.0, "arrivals": "poisson"}),
        ("--profile constant --rate 2 --max-seconds 9", {"duration_s": 9.0, "requests": None}),
    ],
)
def test_profiles_of_guidellm(arguments: str, wanted: dict[str, object]) -> None:
    options = when(f"{arguments} --target http://h:1")
    assert {name: getattr(options, name) for name in wanted} == wanted


def test_a_sweep_of_guidellm_has_as_many_points_as_its_rate_says() -> None:
    assert given("--profile sweep")["sweep"] == 10
    found = given("--profile sweep --rate 5")
    assert (found["sweep"], found["rate"]) == (5, None)


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        ("prompt_tokens=256,output_tokens=128", ("256", "128", None)),
        ("prompt_tokens=256,prompt_tokens_stdev=9,output_tokens=8", ("normal(256,9)", "8", None)),
        (
            "prompt_tokens=256,prompt_tokens_stdev=9,prompt_tokens_max=300,output_tokens=8",
            ("normal(256,9,1,300)", "8", None),
        ),
        (
            "prompt_tokens=20,prompt_tokens_min=10,prompt_tokens_max=30,prefix_tokens=7",
            ("10..30", "128", "7"),
        ),
    ],
)
def test_data_of_guidellm(data: str, wanted: tuple[str, str, str | None]) -> None:
    prompts = what(f"--data {data}")
    assert (prompts.input_tokens, prompts.output_tokens, prompts.prefix_tokens) == wanted


def test_data_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a"}\n')
    assert what(f"--data {shlex.quote(str(path))}").dataset == path


def test_lengths_are_those_of_the_command_where_nothing_is_said() -> None:
    prompts = what("")
    assert (prompts.input_tokens, prompts.output_tokens) == ("256", "128")


def test_conditions_of_goodput_end_where_an_address_begins() -> None:
    found = given("--goodput ttft:500 tpot:50 localhost:8000")
    assert found["goodput"] == ("ttft:500", "tpot:50")
    assert found["url"] == "localhost:8000"
    assert given("--goodput='ttft:p95<300ms' 'itl:p95<50ms'")["goodput"] == (
        "ttft:p95<300ms",
        "itl:p95<50ms",
    )


def test_prices() -> None:
    found = given("--price-input 0.5 --price-output 1.5 --price-cached 0.1")
    assert prices_of(found) == Prices(input_usd=0.5, output_usd=1.5, cached_usd=0.1)
    assert prices_of(given("--price-per-hour 3")) == Prices(hour_usd=3.0)
    assert prices_of(given("")) == Prices()


def test_a_folder_of_its_own_for_a_result_without_one() -> None:
    named = given("--save-result --result-filename mine.json")
    assert str(named["save"]).startswith("headrace-bench-20")
    assert named["result_filename"] == "mine.json"
    assert given("--save-result --result-dir d")["save"] == Path("d")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--profile concurrent", "needs a number of users"),
        ("--profile concurrent --rate 2.5", "must be 1 or more"),
        ("--profile concurrent --rate 2 -c 3", "give one"),
        ("--profile synchronous -c 3", "one request at a time"),
        ("--profile constant", "needs requests per second"),
        ("--profile sweep --rate 2", "3 or more"),
        ("--profile replay --rate 2", "needs a --trace"),
        ("--profile poisson --rate 2 --sweep 4", "both set the load; give one of them"),
        ("--data prompt_words=4", "'prompt_words' is not one of prompt_tokens"),
        ("--data prompt_tokens=x", "'x' is not a whole number"),
        ("--data output_tokens_stdev=4", "but not output_tokens; add it"),
        ("--data no-such-file", "is neither a file nor lengths"),
        ("--data prompt_tokens=4 --isl 5", "contradict each other"),
        ("--isl 5..9 --isl-stddev 2", "--input-tokens-stddev 2 needs one number"),
        ("--isl 50 --isl-stddev 2 --range-ratio 0.1", "give one"),
        ("--price-per-hour 3 --price-output 1", "give one kind"),
        ("--price-cached 3", "add --price-input"),
        ("--percentile-metrics ttft,speed", "is not a list of some of ttft,tpot,itl,e2el"),
        ("--result-filename x.json", "add --save-result or --save DIR"),
        ("--save out --result-filename a/x.json", "without folders"),
        ("--save out --result-filename result.json", "other than result.json"),
        ("--stop-when-saturated -c 3", "never sends more than the server answers"),
        ("--stop-when-saturated --rate inf", "never sends more than the server answers"),
        ("--detect-saturation --search --goodput ttft:5", "omit one of them"),
        ("--trace-block-tokens 64", "needs a --trace; add one"),
    ],
)
def test_what_goes_not_together(arguments: str, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        found = given(arguments)
        load_of(found)
        prompts_of(found)
        prices_of(found)
    assert told in str(raised.value)


def test_flags_without_a_meaning_here_name_ours() -> None:
    taken = {name for option in load.params for name in option.opts}
    assert not taken & set(ELSEWHERE)
    for flag in ELSEWHERE:
        with pytest.raises(click.NoSuchOption, match="No such option") as raised:
            load.make_context("load", [flag, "3"])
        assert "Did you mean" not in str(raised.value)
        assert raised.value.message.count(":") >= 1, flag
    with pytest.raises(click.NoSuchOption, match="read from HEADRACE_BENCH_API_KEY"):
        load.make_context("load", ["http://h:1", "--api-key", "sk-1"])


def test_a_result_as_vllms_scripts_and_a_bill_want_it(tmp_path: Path) -> None:
    with mock() as endpoint:
        done = run(
            *shlex.split(
                f"{endpoint.url} -n 6 -c 2 --isl 8 --osl 4 --quiet --json --save-result "
                f"--result-dir {shlex.quote(str(tmp_path))} --result-filename mine.json "
                "--percentile-metrics ttft --price-per-hour 3.6"
            )
        )
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)["summary"]
    spent = summary["cost"]
    assert spent["basis"] == "machine"
    assert spent["run_usd"] == pytest.approx(0.001 * summary["duration_s"])
    assert spent["per_million_output"] == pytest.approx(1000 / summary["tps_system"])
    assert summary["client"]["collections"] >= 0
    assert summary["saturation"] is None or summary["saturation"]["saturated"] is False
    written = (tmp_path / "mine.json").read_bytes()
    assert written == (tmp_path / "result.json").read_bytes()
    kept = json.loads(written)
    assert "p99_ttft_ms" in kept and "p99_itl_ms" not in kept


@pytest.mark.load
def test_a_sweep_says_what_batching_gained() -> None:
    with mock(ttft_ms=10, capacity=4) as endpoint:
        done = run(
            *shlex.split(
                f"{endpoint.url} --profile sweep --rate 3 -c 4 -n 12 --isl 8 --osl 4 --quiet --json"
            )
        )
    assert done.exit_code == 0, done.output
    loads = json.loads(done.stdout)["sweep"]
    full = loads[-1]
    alone, together = loads[0]["summary"], full["summary"]
    assert loads[0]["batching_efficiency"] == pytest.approx(1 / alone["concurrency"]["mean"])
    assert full["batching_efficiency"] == pytest.approx(
        together["tps_system"] / (together["concurrency"]["mean"] * alone["tps_system"])
    )


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--dataset-name burstgpt", "give its file as --trace"),
        ("--dataset-name hf", "nothing is downloaded; name a file of prompts with --dataset"),
        ("--dataset-name prefix_repetition", "write --prefix-tokens 200 --prefixes 10"),
        ("--dataset-name nothing", "is not one of 'jsonl'"),
        ("--backend sglang", "use its OpenAI API: --backend openai, or openai-chat"),
        ("--min-tokens 128", "--min-tokens is a switch and does not take 128"),
        ("--min-tokens=64", "write --output-tokens 64 --min-tokens"),
        (
            "--use-legacy-max-tokens",
            "max_tokens is sent unless --max-tokens-field names another field",
        ),
    ],
)
def test_values_of_other_tools_are_refused_with_what_is_meant(line: str, told: str) -> None:
    done = run(*shlex.split(line))
    assert done.exit_code == 2
    assert told in " ".join(done.output.split())


def test_a_switch_may_stand_before_the_address() -> None:
    found = given("--min-tokens http://h:1 --dataset-name random --backend vllm")
    assert found["min_tokens"] and found["url"] == "http://h:1"
    assert (found["dataset_kind"], found["kind"]) == ("random", "vllm")


def bodies_of(*more: str) -> list[dict[str, Any]]:
    """What two requests to the mock had in them."""
    with mock() as endpoint:
        done = run(endpoint.url, "-n", "2", "--output-tokens", "4", "--quiet", *more)
        assert done.exit_code == 0, done.output
        return [json.loads(one.body) for one in endpoint.received if one.body]


def test_fields_that_endpoints_differ_in() -> None:
    for body in bodies_of("--max-tokens-field", "max_completion_tokens", "--continuous-usage"):
        assert body["max_completion_tokens"] == 4 and "max_tokens" not in body
        assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
        assert body["return_metrics"] is True
    for body in bodies_of("--no-include-usage", "--no-return-metrics"):
        assert body["max_tokens"] == 4
        assert "stream_options" not in body and "return_metrics" not in body


def test_our_server_is_asked_for_the_wait_in_its_queue() -> None:
    with mock(ttft_ms=40, capacity=1) as endpoint:
        done = run(endpoint.url, "-c", "3", "-n", "6", "--output-tokens", "4", "--quiet", "--json")
    queue = json.loads(done.stdout)["summary"]["queue"]
    assert queue is not None


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--backend anthropic --no-include-usage", "include_usage: is for openai-chat"),
        ("--backend ollama --continuous-usage", "continuous_usage: is for openai-chat"),
        (
            "--backend completions --max-tokens-field max_completion_tokens",
            "max_tokens_field: max_completion_tokens is for openai-chat",
        ),
        ("--no-include-usage --continuous-usage", "need include_usage"),
        ("--think 2", "--think 2 is a pause between turns; add --turns, or omit it"),
        ("--prefixes 4", "--prefixes 4 needs --prefix-tokens; add it"),
    ],
)
def test_what_would_be_without_effect_is_refused(line: str, told: str) -> None:
    with mock() as endpoint:
        done = run(endpoint.url, "--quiet", *shlex.split(line))
    assert done.exit_code == 2
    assert told in " ".join(done.output.split())
