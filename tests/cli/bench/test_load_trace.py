"""`headrace bench load` with a JSONL file whose lines have times: a dataset, or a trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.bench.report.files import read_run
from headrace.cli.bench.load.command import experiment_of
from tests.cli.bench.test_load import mock, run

TOKENS = ["--output-tokens", "2", "--quiet"]


def timed_prompts(folder: Path) -> Path:
    path = folder / "timed.jsonl"
    lines = [{"prompt": f"prompt {at}", "timestamp": 1000 * at} for at in range(3)]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


def test_a_dataset_with_times_is_a_closed_loop_and_says_that_it_uses_none(tmp_path: Path) -> None:
    path, out = timed_prompts(tmp_path), tmp_path / "out"
    with mock() as endpoint:
        done = run(
            endpoint.url, "-c", "1", "-n", "3", "--dataset", str(path), "--save", str(out), *TOKENS
        )
        refused = run(endpoint.url, "--dataset", str(path), "--speed", "2", *TOKENS)
    assert done.exit_code == 0, done.output
    assert "the timestamp of 3 lines is not used" in done.output
    kept = read_run(out)
    assert kept.about["load"] == "closed loop of 1, 3 requests"
    assert kept.about["open_loop"] is False
    before, *later = kept.requests
    for record in later:  # each as soon as the one before has ended
        assert record.intended_ns == before.end_ns
        before = record
    assert refused.exit_code == 2
    assert "--speed" in refused.output


def test_the_same_file_as_a_trace_is_sent_at_its_times(tmp_path: Path) -> None:
    path, out = timed_prompts(tmp_path), tmp_path / "out"
    with mock() as endpoint:
        done = run(
            endpoint.url, "--trace", str(path), "--speed", "1000", "--save", str(out), *TOKENS
        )
    assert done.exit_code == 0, done.output
    kept = read_run(out)
    assert kept.about["load"] == "trace at 1000 times its speed"
    assert kept.about["open_loop"] is True
    assert [one.intended_ns for one in kept.requests] == [0, 1_000_000, 2_000_000]


@pytest.mark.parametrize(
    ("line", "least", "most"),
    [
        ("", 10_000, 100_000),  # its times decide how many are in flight, and nothing else
        ("--rate 50", 10_000, 100_000),
        ("--rate inf", 10_000, 100_000),  # all at once, and how many that is the file says
        ("-c 3", 3, 100),
        ("--rate inf -c 3", 3, 100),
    ],
)
def test_a_trace_has_connections_for_all_that_its_times_bring(
    line: str, least: int, most: int, tmp_path: Path
) -> None:
    path = timed_prompts(tmp_path)
    with mock() as endpoint:
        arguments = [endpoint.url, "--trace", str(path), *line.split(), *TOKENS]
        experiment, _ = experiment_of(arguments)
    assert least <= experiment.limits.max_connections <= most


def test_a_trace_is_sent_whole_while_nothing_has_ended(tmp_path: Path) -> None:
    path, out = tmp_path / "burst.jsonl", tmp_path / "out"
    lines = [{"prompt": f"prompt {at}", "timestamp": at} for at in range(60)]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    with mock(ttft_ms=3_600_000) as endpoint:
        flags = ["--trace", str(path), "--timeout", "2", "--max-error-rate", "1"]
        run(endpoint.url, *flags, "--save", str(out), *TOKENS)
        arrived = len([one for one in endpoint.received if one.path.startswith("/v1/chat")])
    assert arrived == 60
    assert all(one.sent_ns is not None for one in read_run(out).requests)
