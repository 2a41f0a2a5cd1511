"""`headrace plan simulate` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli.plan.group import plan
from headrace.errors import ConfigError, HeadraceError

LATENCY = {
    "step_s": 0.006,
    "prefill_token_s": 4e-5,
    "prefill_pair_s": 1e-9,
    "decode_request_s": 2e-5,
    "decode_context_token_s": 5e-8,
}
SHORT = ("--rate", "5", "--duration", "4", "--prompt", "50", "--output", "5")
MODEL = ("llama-3.1-8b", "--hardware", "h100")


def run(*words: str) -> Result:
    return CliRunner().invoke(plan, ["simulate", *words])


def latency_file(folder: Path, **changed: object) -> str:
    path = folder / "latency.json"
    path.write_text(json.dumps({**LATENCY, **changed}), encoding="utf-8")
    return str(path)


def test_a_model_of_the_catalog_is_timed_by_its_roofline() -> None:
    done = run(*MODEL, *SHORT, "--goodput", "ttft:500 tpot:50 e2e:p95<60s", "--price", "2.5")
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    for word in ("Llama 3.1 8B on 1 x NVIDIA H100 SXM 80 GB a replica", "from data sheet: roofline",
                 "TTFT", "goodput:", "ttft:500: 100.00% of the requests", "2.50 USD/h",
                 "e2e:p95<60s: ", " ms, met", "prefix caching is off"):  # fmt: skip
        assert word in said


def test_a_load_beyond_the_capacity_is_called_an_overload() -> None:
    words = ("--kv-tokens", "32k", "--max-num-seqs", "2", "--duration", "20", "--prompt", "50")
    parts = [word for name, value in LATENCY.items() for word in ("--latency", f"{name}={value}")]
    done = run(*words, *parts, "--output", "20", "--rate", "60", "--no-keep")
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "overloaded: " in said
    assert "can be served, so the queue grows until the load ends" in said
    assert "what helps: about --replicas " in said
    assert "overloaded" not in run(*words, *parts, "--output", "20", "--rate", "3").output


def test_requests_with_drafts_take_fewer_steps() -> None:
    words = (*MODEL, "--rate", "1", "--duration", "20", "--output", "60", "--no-keep", "--json")
    one, several = (
        json.loads(run(*words, *more).output)["overall"]["spreads"]["tpot"]["mean_s"]
        for more in ((), ("--acceptance", "1,1,1"))
    )
    assert several < one / 2


def test_plots_are_drawn_where_they_are_asked_for() -> None:
    words = (*MODEL, *SHORT, "--lanes", "0:0.5,1:0.5", "--no-keep")
    drawn = run(*words, "--plot")
    assert drawn.exit_code == 0, drawn.output
    for word in ("requests by TTFT", "o priority 0", "+ priority 1", "x: TTFT at most, ms (log)",
                 "requests waiting and running", "o running", "+ waiting",
                 "KV cache in use, and replicas busy", "x: time, s"):  # fmt: skip
        assert word in drawn.output
    assert "requests by TTFT" not in run(*words).output


def test_json_of_a_latency_file_and_of_parts_are_the_same(tmp_path: Path) -> None:
    words = (*SHORT, "--kv-tokens", "32k", "--lanes", "0:0.5,1:0.5", "--shared-prefix", "32:2",
             "--seed", "3", "--json")  # fmt: skip
    parts = [word for name, value in LATENCY.items() for word in ("--latency", f"{name}={value}")]
    found = []
    for chosen in (["--latency-model", latency_file(tmp_path)], parts):
        done = run(*words, *chosen)
        assert done.exit_code == 0, done.output
        said = json.loads(done.stdout)
        said["settings"]["engine"]["latency"].pop("source")
        assert said.pop("quantities")[0]["id"] == "simulate.completed"  # inputs name the source
        found.append(said)
    assert found[0] == found[1]
    result = found[0]
    assert result["completed"] == result["arrived"] > 0
    assert {one["priority"] for one in result["lanes"]} == {0, 1}
    assert result["settings"]["engine"]["prefix_caching"] is True
    assert result["prefix_hit_share"] > 0.1
    assert result["points"][0]["at_s"] == 0


def test_a_trace_is_replayed_for_a_day_with_everything_that_can_happen(tmp_path: Path) -> None:
    trace = tmp_path / "mooncake.jsonl"
    rows = [
        {"timestamp": at * 60_000, "input_length": 600, "output_length": 4,
         "hash_ids": [at % 2, 10 + at]}
        for at in range(20)
    ]  # fmt: skip
    trace.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    done = run(
        "--trace", str(trace), "--day-curve", "1,2", "--scale", "2", "--kv-tokens", "4000",
        "--latency-model", latency_file(tmp_path), "--autoscale", "queue", "--cold-start", "5..9",
        "--mtbf", "2000", "--mttr", "20", "--fail-at", "100:0", "--routing", "prefix-aware",
        "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["completed"] == said["arrived"] > 60
    assert said["seconds"] > 3600
    assert said["settings"]["autoscale"]["cold_start_s"] == [5, 9]
    assert {"at_s": 100.0, "replica": 0} in said["failures"]
    assert any("curve of the day is 1, 2" in note for note in said["notes"])


def test_pools_and_the_fewest_replicas(tmp_path: Path) -> None:
    common = (*SHORT, "--latency-model", latency_file(tmp_path), "--kv-tokens", "4000")
    pools = run(*common, "--prefill-replicas", "1", "--decode-replicas", "1",
                "--kv-bytes-per-token", "131072")  # fmt: skip
    assert pools.exit_code == 0, pools.output
    assert "1 prefill and 1 decode replicas, 131 kB of KV a token over 50 GB/s" in pools.output
    found = run(*common, "--find-replicas", "--goodput", "ttft:100", "--json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["fewest_replicas"]["replicas"] == 1


def test_the_search_ends_at_max_replicas_by_either_name() -> None:
    load = ("--rate", "20", "--prompt", "100", "--output", "5", "--duration", "4")
    speed = ("--latency", "step_s=0.1", "--kv-tokens", "4000", "--max-num-seqs", "1")
    common = (*load, *speed, "--find-replicas", "--goodput", "ttft:1000")
    for name in ("--max-replicas", "--most-replicas"):
        done = run(*common, name, "3")
        assert isinstance(done.exception, ConfigError), done.output
        message = str(done.exception)
        assert message.startswith("3 replicas do not meet the SLO: "), message
        assert "raise --max-replicas" in message
        warning = "warning: --most-replicas is now called --max-replicas: rename it\n"
        assert done.stderr == (warning if name == "--most-replicas" else "")
    done = run(*common, "--max-replicas", "0")
    assert isinstance(done.exception, ConfigError)
    assert "max_replicas" in str(done.exception)
    done = run(*common, "--max-replicas", "3", "--most-replicas", "3")
    assert "remove one of the two" in str(done.exception)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "either --rate or --trace"),
        (("--rate", "1"), "the step times are not known"),
        (("--rate", "1", "--latency", "step_s=1"), "--kv-tokens"),
        (("--rate", "1", "--latency", "x=1", "--kv-tokens", "1k"), "latency 'x'"),
        (("--rate", "1", "--latency", "step_s=x", "--kv-tokens", "1k"), "is not a number"),
        ((*MODEL, "--rate", "1", "--day"), "--day repeats a --trace"),
        ((*MODEL, "--rate", "1", "--lanes", "x"), "PRIORITY:SHARE"),
        ((*MODEL, "--rate", "1", "--shared-prefix", "0"), "TOKENS:GROUPS"),
        ((*MODEL, "--rate", "1", "--fail-at", "3:x"), "SECOND:REPLICA"),
        ((*MODEL, "--rate", "1", "--find-replicas"), "needs an SLO"),
        ((*MODEL, "--rate", "1", "--prefill-replicas", "1"), "there are two pools"),
        ((*MODEL, "--rate", "1", "--min-replicas", "1"), "needs --autoscale"),
        ((*MODEL, "--rate", "1", "--max-replicas", "1"), "needs --autoscale"),
        ((*MODEL, "--rate", "1", "--goodput", "itl:p95<5"), "no itl_chunk"),
        ((*MODEL, "--rate", "1", "--prompt", "500k", "--output", "1"), "not a whole number"),
        ((*MODEL, "--rate", "1", "--prompt", "9000000"), "fit"),
        ((*MODEL, *SHORT, "--acceptance", "0.5,x"), "shares with commas"),
        ((*MODEL, *SHORT, "--acceptance", "1.5"), "must be from 0 to 1"),
    ],
)
def test_what_cannot_be_simulated_is_said(words: tuple[str, ...], said: str) -> None:
    done = run(*words)
    assert isinstance(done.exception, HeadraceError), done.output
    assert said in str(done.exception)


def test_a_wrong_latency_file_is_named_with_its_field(tmp_path: Path) -> None:
    for changed, said in (
        ({"steps": 1}, "has 'steps'"),
        ({"step_s": "1"}, "step_s is '1'"),
        ({"step_s": -1}, "step_s"),
    ):
        done = run(
            *SHORT, "--kv-tokens", "4k", "--latency-model", latency_file(tmp_path, **changed)
        )
        assert isinstance(done.exception, HeadraceError)
        assert said in str(done.exception)
