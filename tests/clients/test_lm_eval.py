"""lm-evaluation-harness itself over a task file, against a running server: the scores of `headrace
eval tasks`, document by document.

It is one of the packages of `make clients`. It tokenizes by itself, from a folder of
`headrace convert`, and asks for log probabilities of prompts (`echo`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.written_model import write_model
from headrace.embedded import embedded_model
from headrace.weights.open import open_checkpoint
from tests.clients.test_tours import CLIENTS, ROOT, TIMEOUT_S, clients_python
from tests.system.conftest import RunningServer

pytestmark = pytest.mark.clients

TASKS = ROOT / "examples" / "tasks"
SAME_NATS = 1e-3
"""A prompt is read in other batches here and there, and the wire rounds."""


def harness(url: str, model: str, tokenizer: Path, out: Path) -> tuple[dict[str, Any], list[Any]]:
    """Results and samples of the task, by document."""
    settings = {
        "base_url": f"{url}/v1/completions", "model": model, "tokenizer_backend": "huggingface",
        "tokenizer": str(tokenizer), "add_bos_token": "True", "num_concurrent": "4",
    }  # fmt: skip
    named = ",".join(f"{key}={value}" for key, value in settings.items())
    command = [str(CLIENTS), "-m", "lm_eval", "run", "--model", "local-completions"]
    command += ["--model_args", named, "--tasks", "python_choice", "--include_path", "."]
    command += ["--output_path", str(out), "--log_samples"]
    environment = os.environ | {
        "PYTHONPATH": "", "NO_PROXY": "127.0.0.1,localhost", "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(out / "cache"), "DO_NOT_TRACK": "1",
    }  # fmt: skip
    done = subprocess.run(command, cwd=TASKS, env=environment, capture_output=True, text=True,
                          timeout=TIMEOUT_S, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    (results,) = out.glob("*/results_*.json")
    (samples,) = out.glob("*/samples_python_choice_*.jsonl")
    lines = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]
    found = json.loads(results.read_text(encoding="utf-8"))["results"]["python_choice"]
    return found, sorted(lines, key=lambda sample: int(sample["doc_id"]))


def own(folder: Path) -> tuple[dict[str, Any], list[Any]]:
    """The same of `headrace eval tasks`."""
    samples = folder / "samples.jsonl"
    command = [sys.executable, "-m", "headrace.cli.main", "eval", "tasks", "--json"]
    command += ["--task", str(TASKS / "python_choice.yaml"), "--log-samples", str(samples)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    lines = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]
    return json.loads(done.stdout)["results"]["python_choice"], lines


def test_scores_are_those_of_eval_tasks(server: RunningServer, tmp_path: Path) -> None:
    clients_python()
    write_model(open_checkpoint(embedded_model()), tmp_path / "folder", codec="BF16")
    theirs, of_theirs = harness(server.url, server.model, tmp_path / "folder", tmp_path / "out")
    ours, of_ours = own(tmp_path)
    assert len(of_ours) == len(of_theirs) == 24
    for left, right in zip(of_ours, of_theirs, strict=True):
        for (nats, greedy), (other, is_greedy) in zip(
            left["resps"], right["filtered_resps"], strict=True
        ):
            assert float(other) == pytest.approx(nats, abs=SAME_NATS)
            assert str(greedy) == str(is_greedy)
    for metric in ("acc,none", "acc_norm,none"):
        assert theirs[metric] == pytest.approx(ours[metric])
        assert 0.5 < ours[metric] <= 1
