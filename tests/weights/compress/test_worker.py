"""What runs beside llm-compressor, with stand-ins for the libraries that it calls."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.weights.compress import worker
from headrace.weights.compress.library import environment_of


class SafetensorError(Exception):
    """As safetensors names it: no OSError."""


class Model:
    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def state_dict(self) -> dict[str, object]:
        return {}

    def save_pretrained(self, out: str, save_compressed: bool) -> None:
        Path(out).mkdir()
        (Path(out) / "model.safetensors").write_bytes(b"a part")
        if self.error is not None:
            raise self.error


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job's file, in a process that seems to have PyTorch."""
    torch = SimpleNamespace(set_num_threads=lambda count: None, manual_seed=lambda seed: None)
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    monkeypatch.setattr(worker, "_compressed", lambda model, job: model)
    monkeypatch.setattr(worker, "version", lambda name: "0.1")
    path = tmp_path / "job.json"
    job = {"source": str(tmp_path), "out": str(tmp_path / "out"), "threads": 1}
    path.write_text(json.dumps(job), encoding="utf-8")
    return path


def answer_of(job: Path) -> dict[str, str]:
    answer = job.with_name("answer.json")
    worker.main(job, answer)
    found: dict[str, str] = json.loads(answer.read_text(encoding="utf-8"))
    assert not list(job.parent.glob("*.part"))
    return found


@pytest.mark.parametrize(
    "error",
    [
        SafetensorError("I/O error: No space left on device (os error 28)"),
        OSError(28, "No space left on device"),
    ],
)
def test_a_full_disk_is_an_answer_and_leaves_no_part(
    error: Exception, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_loaded", lambda source: Model(error))
    found = answer_of(job)
    assert found["stage"] == "write" and "No space left on device" in found["error"]
    assert found["error"].startswith(type(error).__name__)
    assert not (job.parent / "out").exists()


def test_a_folder_that_is_written_is_answered_with_the_program(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_loaded", lambda source: Model(None))
    assert answer_of(job) == {"program": "llm-compressor 0.1"}
    assert (job.parent / "out" / "model.safetensors").exists()


def test_whatever_else_fails_is_answered_with_its_words(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    found = answer_of(job)
    assert found["stage"] == "" and found["error"].startswith("ModuleNotFoundError: ")
    job.write_text("no JSON", encoding="utf-8")
    assert answer_of(job)["error"].startswith("JSONDecodeError: ")


WAITING = """
import os, pathlib, subprocess, time
child = subprocess.Popen(["sleep", "600"])
pathlib.Path({place!r}).write_text(f"{{os.getpid()}} {{child.pid}}")
time.sleep(600)
"""
"""A PyTorch that starts a process and takes long to be imported."""
STARTING = """
import sys
from pathlib import Path
from headrace.weights.compress.library import Job, run_job

work = Path(sys.argv[1])
job = Job(
    source="s", out="o", scheme="W8A8", method="nearest", group_size=0, ignore=[], windows=[],
    threads=1,
)
run_job(job, work, work / "python")
"""


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def holds(condition: object, seconds: float = 20) -> bool:
    """Whether it comes to hold."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_the_worker_ends_with_who_started_it(number: signal.Signals, tmp_path: Path) -> None:
    pids, modules = tmp_path / "pids", tmp_path / "modules"
    modules.mkdir()
    (modules / "torch.py").write_text(WAITING.format(place=str(pids)))
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={modules} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTING, str(tmp_path)], stderr=subprocess.DEVNULL
    )
    try:
        assert holds(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        started = [int(pid) for pid in pids.read_text().split()]
        assert all(map(is_running, started))
        # Ctrl-C of a terminal reaches its session, of which the worker is none.
        assert os.getsid(started[0]) == started[0] == os.getpgid(started[1])
        starter.send_signal(number)
        starter.wait(20)
        assert holds(lambda: not any(map(is_running, started)))
    finally:
        starter.kill()
        starter.wait()


def test_the_worker_sees_no_tokens_and_keys() -> None:
    passed = {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "CUDA_VISIBLE_DEVICES": "0"}
    kept_back = {
        "HF_TOKEN": "t", "OPENAI_API_KEY": "k", "AWS_SECRET_ACCESS_KEY": "s", "PYTHONPATH": "p",
        "MY_PATH": "m", "PATH_OF_KEY": "k",
    }  # fmt: skip
    found = environment_of(passed | kept_back, 3)
    assert not found.keys() & kept_back.keys() and found.items() >= passed.items()
    assert found["HF_HUB_OFFLINE"] == "1" and found["OMP_NUM_THREADS"] == "3"
