"""A small run of the gateway overhead, how it is judged, and what endpoint and loader do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import instant_endpoint
from benchmarks.gateway_overhead import arguments, missed, ratio, report, told
from benchmarks.gateway_peers import BARE, HEADRACE, LITELLM, make_environment
from benchmarks.keep_alive_loader import Count, quantile, request_bytes

GOOD = {
    "added_one_p50_ms": 0.5, "added_one_p99_ms": 1.0, "added_rate_p50_ms": 0.6,
    "added_rate_p99_ms": 2.0, "saturated_per_s": 3000.0, "cpu_us": 300.0, "chunks_per_s": 60_000.0,
    "start_mb": 50.0, "half_mb": 55.0, "end_mb": 55.0, "import_s": 0.2, "first_answer_s": 0.5,
    "loader_share": 0.2, "memory_requests": 100_000, "client_bound": 0.0,
}  # fmt: skip
DIRECT = {
    "one_p50_ms": 0.02, "one_p99_ms": 0.05, "rate_p50_ms": 0.2, "rate_p99_ms": 0.5,
    "saturated_per_s": 50_000.0, "chunks_per_s": 1e6, "client_bound": 0.0,
}  # fmt: skip


@pytest.mark.process
def test_a_quick_run_has_every_figure(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gateway_overhead", "--quick", "--no-litellm"]
    command += ["--no-bare", "--json", "--save", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["rounds"]
    (ours,), (direct,) = found[HEADRACE.name], found["direct"]
    # A busy machine may not have held the rate; then there are no times of it.
    assert set(GOOD) - set(ours) <= {"added_rate_p50_ms", "added_rate_p99_ms", "client_bound"}
    assert set(direct) == set(DIRECT)
    assert ours["memory_requests"] == 400
    log = (tmp_path / HEADRACE.name / "1" / "log.txt").read_text()
    assert "left/instant" in log and "right/instant" in log, "both targets were asked"
    assert "Traceback" not in log
    assert json.loads((tmp_path / "figures.json").read_text())["rounds"] == found


def test_targets_are_judged_by_medians() -> None:
    bare, slow = GOOD | {"saturated_per_s": 5000.0}, GOOD | {"saturated_per_s": 100.0}
    found = {HEADRACE.name: [GOOD, GOOD], BARE.name: [bare], LITELLM.name: [slow]}
    assert missed(found) == []
    late = GOOD | {"added_rate_p99_ms": 6.0, "saturated_per_s": 2000.0}
    said = missed(found | {HEADRACE.name: [late]})
    assert [each.split()[0] for each in said] == ["added_rate_p99_ms", "requests/s", "requests/s"]
    without = {name: GOOD[name] for name in GOOD if not name.startswith("added_rate")}
    assert len(missed({HEADRACE.name: [without]})) == 2, "a rate that is not held is missed"


def test_the_table_has_ratios_and_spreads() -> None:
    slow = GOOD | {"saturated_per_s": 100.0}
    del slow["added_rate_p50_ms"]
    found = {"direct": [DIRECT], HEADRACE.name: [GOOD, GOOD], LITELLM.name: [slow, slow]}
    shown = report(found, [HEADRACE, LITELLM])
    assert "| requests/s at 32 connections | 3,000 [3,000..3,000] | 100 [100..100] | 30.00 |" in (
        shown
    )
    assert "open loop, p50, ms | 0.60 [0.60..0.60] | - | - |" in shown
    assert "the loader had at most 20% of a core" in shown and "itself in" not in shown
    found["direct"] = [DIRECT | {"client_bound": 1.0}]
    assert "the limit itself in 1 of 5 runs" in report(found, [HEADRACE, LITELLM])
    assert told([GOOD], "cpu_us", 0) == "300" and told([], "cpu_us", 0) is None
    assert ratio([GOOD], [GOOD | {"cpu_us": 0.0}], "cpu_us") is None


def test_configurations_have_two_targets_and_a_key(tmp_path: Path) -> None:
    for peer in (HEADRACE, LITELLM):
        peer.configure(tmp_path, "http://127.0.0.1:9")
    ours = json.loads((tmp_path / "gateway.yaml").read_text())
    assert {our["base_url"] for our in ours["providers"].values()} == {
        "http://127.0.0.1:9/v1",
        "http://localhost:9/v1",
    }
    assert ours["access"]["keys"]["bench"]["key"].startswith("env:")
    theirs = json.loads((tmp_path / "litellm.yaml").read_text())
    assert len(theirs["model_list"]) == 2 and theirs["general_settings"]["master_key"]
    assert make_environment(HEADRACE, tmp_path) == Path(sys.executable)


def test_quick_is_seconds() -> None:
    options = arguments(["--quick", "--no-bare"])
    assert (options.rounds, options.requests, options.no_bare) == (1, 400, True)
    assert options.peers_dir.is_absolute()


def test_the_endpoint_writes_whole_events_in_pieces_of_http() -> None:
    answers = instant_endpoint.Answers(70)
    body = b"".join([answers.opening.partition(b"\r\n\r\n")[2], *answers.writes, answers.ending])
    events = []
    while body:
        size, _, body = body.partition(b"\r\n")
        piece, body = body[: int(size, 16)], body[int(size, 16) + 2 :]
        events.append(piece)
    assert events[-1] == b"" and events[-2] == b"data: [DONE]\n\n"
    read = [json.loads(event[6:]) for event in events[:-2]]
    assert sum(bool(each["choices"][0]["delta"].get("content")) for each in read[:-1]) == 70
    assert read[-1]["usage"]["completion_tokens"] == 70
    head, _, told_body = answers.whole.partition(b"\r\n\r\n")
    assert b"content-length: %d" % len(told_body) in head and json.loads(told_body)["usage"]


@pytest.mark.parametrize("stream", [False, True])
def test_the_loader_sends_what_the_endpoint_looks_for(stream: bool) -> None:
    request = request_bytes("http://127.0.0.1:9", "chat", "k", stream=stream)
    head, _, body = request.partition(b"\r\n\r\n")
    found = instant_endpoint._LENGTH.search(head + b"\r\n")
    assert found is not None and int(found[1]) == len(body)
    assert bool(instant_endpoint._STREAM.search(request)) is stream


def test_the_loader_counts_no_more_than_it_may() -> None:
    count = Count(2, float("inf"))
    assert [count.may_send() for _ in range(3)] == [True, True, False]
    assert not Count(None, 0.0).may_send()
    assert quantile([1.0, 2.0, 3.0], 0.5) == 2.0 and quantile([1.0], 0.99) == 1.0
