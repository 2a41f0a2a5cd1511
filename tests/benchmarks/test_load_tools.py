"""Tools get one load, their files are read, and figures stand beside ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.load_peers import PEERS, PROMPTS, TOTALS, Load, Peer, UnreadableError
from benchmarks.load_tools import (
    arguments,
    difference,
    found_peers,
    our_flags,
    rows,
    setup_told,
    under,
    write_prompts,
)
from headrace.bench.definitions import DEFINITIONS
from headrace.bench.record import Chunk, ClientHealth, RequestRecord, RunRecord, Usage

LOAD = Load("http://127.0.0.1:1", "m", Path("/t"), "chat", 12, 3, None, 16, 7)
MS = 1_000_000


def run_of(*starts_ms: int) -> RunRecord:
    """Requests with a role at 10 ms, text at 20, 30 and 40 and an empty event at 60."""
    told = ((10, "role", ""), (20, "text", "a"), (30, "text", "b"), (40, "text", "c"))
    requests = tuple(
        RequestRecord(
            index=index,
            measured=True,
            intended_ns=start * MS,
            sent_ns=start * MS,
            end_ns=(start + 70) * MS,
            chunks=(
                *(Chunk((start + at) * MS, kind, text) for at, kind, text in told),
                Chunk((start + 60) * MS, "other"),
            ),
            usage=Usage(prompt_tokens=5, completion_tokens=3),
        )
        for index, start in enumerate(starts_ms)
    )
    health = ClientHealth(schedule_lag_ns=(0,), loop_lag_ns=(0,), cpu_share=(0.1,))
    return RunRecord(about={}, requests=requests, health=health)


def vllm_file(folder: Path, **changed: object) -> None:
    told = {
        "completed": 2,
        "duration": 2.0,
        "request_throughput": 1.0,
        "output_throughput": 3.0,
        "total_input_tokens": 10,
        "total_output_tokens": 6,
    }
    for metric, value in {"ttft": 20.0, "tpot": 10.0, "itl": 9.0, "e2el": 40.0}.items():
        told |= {f"{word}_{metric}_ms": value for word in ("mean", "median", "p99")}
    (folder / "vllm.json").write_text(json.dumps(told | changed))


def guidellm_file(folder: Path) -> None:
    names = ["requests_per_second", "output_tokens_per_second", "prompt_token_count"]
    names += ["output_token_count", "time_to_first_token_ms", "time_per_output_token_ms"]
    names += ["inter_token_latency_ms", "request_latency"]
    spread = {"mean": 1.5, "percentiles": {"p50": 1.0, "p99": 2.0}}
    metrics = {"request_totals": {"successful": 2}}
    metrics |= {name: {"successful": spread} for name in names}
    told = {"benchmarks": [{"duration": 2.0, "metrics": metrics}]}
    (folder / "guidellm.json").write_text(json.dumps(told))


def aiperf_file(folder: Path, unit: str = "ms") -> None:
    counts = ["request_count", "benchmark_duration", "request_throughput"]
    counts += ["output_token_throughput", "input_sequence_length", "output_sequence_length"]
    times = ["time_to_first_token", "inter_token_latency", "request_latency"]
    told: dict[str, object] = {name: {"unit": "x", "avg": 2.0} for name in counts}
    told |= {name: {"unit": unit, "avg": 1.5, "p50": 1.0, "p99": 2.0} for name in times}
    (folder / "profile_export_aiperf.json").write_text(json.dumps(told))


def test_every_tool_gets_the_same_prompts_in_order(tmp_path: Path) -> None:
    write_prompts(["a b", "c"], 16, list(PEERS.values()), tmp_path)
    for name, fields in {
        "ours": ("prompt", "output_tokens"),
        "vllm": ("prompt", "output_tokens"),
        "guidellm": ("prompt", "output_tokens_count"),
        "aiperf": ("text", "output_length"),
    }.items():
        lines = (tmp_path / name / PROMPTS).read_text().splitlines()
        assert [tuple(json.loads(line)[field] for field in fields) for line in lines] == [
            ("a b", 16),
            ("c", 16),
        ]


@pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)
def test_commands_say_the_load(peer: Peer, tmp_path: Path) -> None:
    users = " ".join(peer.command(LOAD, tmp_path / "d", tmp_path))
    evenly = " ".join(peer.command(LOAD._replace(rate=2.5), tmp_path / "d", tmp_path))
    for said in (LOAD.url, "12", "7", "temperature", str(tmp_path / "d"), "/t"):
        assert said in users
    assert "ignore_eos" in users.replace("-", "_")
    assert "2.5" in evenly and "2.5" not in users


def test_ours_says_it_too() -> None:
    flags = our_flags(LOAD, Path("d"), Path("o"))
    assert flags[flags.index("--concurrency") + 1] == "3" and "--ignore-eos" in flags
    flags = our_flags(LOAD._replace(rate=2.5), Path("d"), Path("o"))
    assert flags[flags.index("--rate") + 1] == "2.5" and "--concurrency" not in flags


def test_files_are_read_under_the_names_of_definitions(tmp_path: Path) -> None:
    vllm_file(tmp_path)
    guidellm_file(tmp_path)
    aiperf_file(tmp_path)
    for name, peer in PEERS.items():
        figures = peer.read(tmp_path)
        metrics = {metric for metric, statistic in figures if statistic}
        assert metrics <= {each.name for each in DEFINITIONS[name].metrics}
        assert {metric for metric, statistic in figures if not statistic} == set(TOTALS)
        assert set(peer.why) >= {metric for metric, _ in figures}
    assert PEERS["vllm"].read(tmp_path)["prompt tokens", ""] == 5
    assert PEERS["guidellm"].read(tmp_path)["request_latency", "p99"] == 2000
    assert PEERS["aiperf"].read(tmp_path)["request_latency", "p99"] == 2


def test_files_that_cannot_be_believed_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=r"vllm\.json"):
        PEERS["vllm"].read(tmp_path)
    vllm_file(tmp_path, completed=0)
    with pytest.raises(UnreadableError, match="no request succeeded"):
        PEERS["vllm"].read(tmp_path)
    (tmp_path / "guidellm.json").write_text('{"benchmarks": []}')
    with pytest.raises(UnreadableError, match=r"no benchmarks\.0"):
        PEERS["guidellm"].read(tmp_path)
    aiperf_file(tmp_path, unit="s")
    with pytest.raises(UnreadableError, match="is in s, not in ms"):
        PEERS["aiperf"].read(tmp_path)


def test_a_run_of_ours_is_read_under_both_definitions(tmp_path: Path) -> None:
    run = run_of(0, 100)
    assert under(run, "guidellm")["time_to_first_token", "p50"] == 20
    assert under(run, "headrace")["ttft", "p50"] == 20
    assert under(run, "guidellm")["request_latency", "p50"] == 70
    assert under(run, "headrace")["e2e", "p50"] == 40
    vllm_file(tmp_path)
    found = rows(PEERS["vllm"], [PEERS["vllm"].read(tmp_path)], [run])
    by_name = {row[0]: row[1:] for row in found}
    # 20 ms to the first text are theirs and ours under ours.
    assert by_name["vllm ttft, p50"][0] == by_name["vllm ttft, p50"][3] == "20.00"
    assert by_name["vllm prompt tokens"] == ["5.00", "5.00", "+0.0%", "5.00"]


def test_medians_are_compared() -> None:
    assert difference([10.0, 20.0, 90.0], [30.0]) == "+50.0%"
    assert difference([], [1.0]) is None and difference([0.0], [1.0]) is None


def test_a_tool_that_is_not_there_is_told_how_to_set_up(tmp_path: Path) -> None:
    program = tmp_path / "vllm" / "bin" / "vllm"
    program.parent.mkdir(parents=True)
    program.write_text("")
    here, missing = found_peers(tmp_path, list(PEERS))
    assert [each.name for each in here] == ["vllm"]
    assert [each.name for each in missing] == ["guidellm", "aiperf"]
    told = setup_told(tmp_path, missing[0])
    assert f"{tmp_path / 'guidellm'}/bin/pip install guidellm" in told


def test_quick_is_few() -> None:
    options = arguments(["--quick", "--tool", "aiperf"])
    assert (options.requests, options.rounds, options.tool) == (12, 1, ["aiperf"])
    assert options.tools_dir.is_absolute()
