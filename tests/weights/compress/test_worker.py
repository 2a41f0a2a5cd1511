"""What runs beside llm-compressor, with stand-ins for the libraries that it calls."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.weights.compress import worker


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
