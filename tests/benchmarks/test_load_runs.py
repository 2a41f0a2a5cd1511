"""Processes that are started end; tables are Markdown."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime

import pytest

from benchmarks.load_runs import RunError, cores, endpoint, json_of, load_here, pinned
from benchmarks.markdown import number, surroundings, surroundings_line, table
from headrace.errors import ConfigError
from tests.cli.bench.test_load import SHORT, mock, run

SPEAKS = 'import time; print(\'{"url": "http://x"}\', flush=True); time.sleep(600)'


def test_an_endpoint_ends_with_its_block() -> None:
    with endpoint([sys.executable, "-c", SPEAKS]) as one:
        assert one.url == "http://x" and one.process.poll() is None
    assert one.process.returncode == -15


def test_an_endpoint_that_ends_at_once_is_told() -> None:
    with pytest.raises(RunError, match="before it listened"), endpoint([sys.executable, "-c", ""]):
        pass


def test_what_is_started_inside_has_the_cores() -> None:
    before = os.sched_getaffinity(0)
    one = cores()[-1:]
    command = [sys.executable, "-c", "import os; print([*os.sched_getaffinity(0)])"]
    command[-1] = "import json, os; print(json.dumps({'cores': [*os.sched_getaffinity(0)]}))"
    assert json_of(command, timeout_s=60, on=one) == {"cores": one}
    assert os.sched_getaffinity(0) == before
    with pinned(None):
        assert os.sched_getaffinity(0) == before


def test_a_command_without_figures_is_told() -> None:
    with pytest.raises(RunError, match="ended with 3"):
        json_of([sys.executable, "-c", "raise SystemExit(3)"], timeout_s=60)


@pytest.mark.load
def test_a_run_in_this_process_leaves_the_command_as_it_was() -> None:
    with mock() as source:
        done = load_here([source.url, "-c", "2", "-n", "4", *SHORT])
        assert (done.summary.requests.completed, done.ending) == (4, "complete")
        assert "completed" in run(source.url, "-n", "2", *SHORT).output
    with pytest.raises(ConfigError, match="is a list, which only a sweep takes"):
        load_here(["--rate", "1,2"])


def test_tables_are_markdown() -> None:
    told = table(["what", "p50"], [["a|b", number(1234.5, 1)], ["c", number(None)]])
    assert told == "| what | p50 |\n|---|---:|\n| a\\|b | 1,234.5 |\n| c | - |"
    with pytest.raises(ValueError, match="cells"):
        table(["what", "p50"], [["c"]])


def test_the_machine_and_the_day_are_told() -> None:
    told = surroundings_line(surroundings(datetime(2026, 3, 4, tzinfo=UTC)))
    assert "2026-03-04" in told and "CPUs" in told and "load average" in told
