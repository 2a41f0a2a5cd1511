"""A whole server as an operator sees it: its log, and its metrics when the engine is killed."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.server.serve_process import Process

KEY, ADMIN = "sk-operator-secret-1", "sk-admin-secret-2"
PROMPT = "what nobody else should read"


def _engine_pid(process: Process) -> int:
    tasks = Path(f"/proc/{process.process.pid}/task").iterdir()
    (child,) = {int(one) for task in tasks for one in (task / "children").read_text().split()}
    return child


@pytest.mark.process
def test_a_log_of_json_has_nothing_else_and_no_secrets(
    model: Path, started: Callable[..., Process]
) -> None:
    process = started(
        model,
        served_model_name=("m",),
        api_key=(KEY,),
        admin_api_key=ADMIN,
        log_format="json",
        log_level="debug",
        enable_log_requests=True,
        status_interval=0.1,
    ).wait_ready()
    for key in (KEY, ADMIN, "sk-wrong-secret-3"):
        httpx.post(
            f"{process.url}/v1/completions",
            json={"prompt": PROMPT, "max_tokens": 3},
            headers={"authorization": f"Bearer {key}"},
            timeout=30,
        )
        httpx.get(f"{process.url}/admin/settings", headers={"authorization": f"Bearer {key}"})
    time.sleep(0.3)
    code, log = process.end()
    assert code == 0
    lines = [json.loads(line) for line in log.splitlines()]
    assert {"headrace.access", "headrace.status", "headrace.server.generation.pieces"} <= {
        line["logger"] for line in lines
    }
    for secret in (KEY, ADMIN, "sk-wrong-secret-3", PROMPT):
        assert secret not in log


@pytest.mark.process
def test_a_text_log_is_lines_with_times(model: Path, started: Callable[..., Process]) -> None:
    process = started(model, enable_log_requests=True).wait_ready()
    process.post("/v1/completions", prompt=PROMPT, max_tokens=3, ignore_eos=True, nonsense=1)
    code, log = process.end()
    assert code == 0
    lines = log.splitlines()
    assert all(line[10] == "T" and line[23] == "Z" for line in lines), log
    (ended,) = [line for line in lines if "request ended" in line]
    assert "endpoint=/v1/completions status=200" in ended and "output_tokens=3" in ended


@pytest.mark.process
def test_a_restart_is_counted(model: Path, started: Callable[..., Process]) -> None:
    process = started(model, served_model_name=("m",)).wait_ready()
    process.post("/v1/completions", prompt="x", max_tokens=3, ignore_eos=True)

    def sample(name: str) -> float:
        lines = httpx.get(f"{process.url}/metrics", timeout=30).text.splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(name))

    died = 'headrace:engine_restarts_total{reason="died"}'
    assert (sample(died), sample("headrace:engine_recovery_seconds_count")) == (0, 0)
    assert (sample("headrace:ready"), sample("headrace:engine_up")) == (1, 1)
    os.kill(_engine_pid(process), signal.SIGKILL)
    for _ in range(1500):
        if sample("headrace:engine_recovery_seconds_count") == 1:
            break
        time.sleep(0.01)
    assert (sample("headrace:ready"), sample("headrace:engine_up")) == (1, 1)
    assert (sample(died), sample("headrace:engine_recovery_seconds_count")) == (1, 1)
    assert 0 < sample("headrace:engine_recovery_seconds_sum") < 60
    assert (
        process.post("/v1/completions", prompt="x", max_tokens=3, ignore_eos=True).status_code
        == 200
    )
    assert sample("vllm:generation_tokens_total") == 3, "its totals begin anew"
    assert sample("vllm:request_generation_tokens_sum") == 6, "the server's go on"
