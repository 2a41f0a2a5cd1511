"""Loading: the phases, the tokens that may be sampled, the embedded model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace.embedded
import headrace.engine.load
from headrace.config.settings import EngineConfig
from headrace.embedded import embedded_model
from headrace.engine.load import count_tokens, load_engine
from headrace.engine.memory.kv_memory import CachePlan, plan_kv_cache
from headrace.errors import CheckpointError, HeadraceError
from headrace.ops.device import DeviceMemory
from headrace.ops.reference import ReferenceOps
from headrace.weights.checkpoint import TokenizerData
from headrace.weights.store.resolve import resolve_model
from tests.engine.mock import Clock, drain, submit
from tests.tiny import EOS, IM_END, write_tiny_gguf, write_tiny_hf


@pytest.mark.parametrize(
    ("write", "backend"),
    [
        (write_tiny_gguf, "reference"),
        (write_tiny_hf, "reference"),
        pytest.param(write_tiny_gguf, "torch", marks=pytest.mark.torch),
    ],
)
def test_a_file_becomes_an_engine_with_timed_phases(
    tmp_path: Path, write: object, backend: str
) -> None:
    if backend == "torch":
        pytest.importorskip("torch", reason="the torch backend needs PyTorch")
    path = write(tmp_path)  # type: ignore[operator]
    clock = Clock()
    progress: list[tuple[int, int]] = []
    config = EngineConfig(
        model=str(path),
        backend=backend,
        device="cpu",
        num_gpu_blocks_override=16,  # type: ignore[arg-type]
    )
    core, checkpoint = load_engine(
        config, clock=clock, started_s=clock.now_s - 5, progress=lambda *at: progress.append(at)
    )
    phases = core.info().phases_s
    assert list(phases) == ["import", "open", "backend", "weights", "kv_cache", "warm_up"]
    assert phases["import"] > 5
    assert progress[-1][0] == progress[-1][1]
    assert checkpoint.eos_token_ids == (EOS, IM_END)
    core.submit(submit("a", list(range(40)), temperature=100.0, seed=1, max_tokens=200))
    assert max(drain(core)["a"].token_ids) < 260


def _resident_bytes(path: Path) -> int:
    """Of a mapped file, in this process (proc(5), smaps)."""
    resident, in_file = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        key, *rest = line.split()
        if not key.endswith(":"):
            in_file = rest[-1] == str(path)
        elif in_file and key == "Rss:":
            resident += 1024 * int(rest[0])
    return resident


def test_pages_of_the_file_are_let_go_when_it_is_packed() -> None:
    path = embedded_model().resolve()
    core, checkpoint = load_engine(EngineConfig(model=str(path), num_gpu_blocks_override=16))
    assert core.info().weight_bytes > path.stat().st_size // 2
    assert checkpoint.tensors, "which refer to the file"
    assert _resident_bytes(path) < path.stat().st_size // 10


def test_a_draft_models_step_is_counted_on_a_device_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target's and its own are what the KV cache leaves there."""
    path = str(write_tiny_gguf(tmp_path))
    reserved = []

    def planned(*args: Any, reserved_bytes: int, **named: Any) -> CachePlan:
        reserved.append(reserved_bytes)
        return plan_kv_cache(*args, reserved_bytes=reserved_bytes, **named)

    device = DeviceMemory(8 << 30, 8 << 30)
    monkeypatch.setattr(ReferenceOps, "memory", lambda ops: device)
    monkeypatch.setattr(headrace.engine.load, "plan_kv_cache", planned)
    draft = f'{{"method": "draft_model", "model": "{path}"}}'
    for speculative in ("none", draft):
        config = EngineConfig(
            model=path, backend="reference", max_num_seqs=2, max_model_len=64, enforce_eager=True,
            speculative_config=speculative,
        )  # fmt: skip
        load_engine(config)
    alone, with_draft = reserved
    assert alone > 0 and with_draft == 2 * alone, "a draft of the target's own shape"


def test_tokens_are_counted_from_either_kind_of_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(
        '{"version": "1.0", "added_tokens": [{"id": 7, "content": "x", "special": true}],'
        ' "model": {"type": "BPE", "vocab": {"a": 0, "b": 3}, "merges": ["a b"]}}'
    )
    data = TokenizerData("tokenizer.json", json_path=path)
    assert count_tokens(data, 100) == 8
    assert count_tokens(data, 5) == 5
    path.write_text('{"model": {"type": "Unigram", "vocab": [["a", -1.5], ["b", -2]]}}')
    assert count_tokens(data, 100) == 2
    path.write_text("{")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        count_tokens(data, 100)
    gguf = {"tokens": ["a", "b", "[PAD1]", "c", "[PAD2]"], "token_type": [1, 1, 5, 1, 5]}
    assert count_tokens(TokenizerData("gguf", gguf=gguf), 100) == 4
    assert count_tokens(TokenizerData("gguf", gguf={"tokens": ["a", "b"]}), 100) == 2
    assert count_tokens(TokenizerData("none"), 100) == 100


def test_without_a_name_the_embedded_model_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert resolve_model("some/model.gguf") == Path("some/model.gguf")
    monkeypatch.setattr(headrace.embedded, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(CheckpointError, match="none"):
        resolve_model("")
    (tmp_path / "small.gguf").touch()
    assert resolve_model("") == embedded_model() == tmp_path / "small.gguf"
    (tmp_path / "other.gguf").touch()
    with pytest.raises(CheckpointError, match=r"other\.gguf, small\.gguf"):
        embedded_model()


def test_what_cannot_be_loaded_is_said_in_one_kind_of_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 40)
    for model in (broken, tmp_path / "absent"):
        with pytest.raises(HeadraceError):
            load_engine(EngineConfig(model=str(model), backend="reference"))
