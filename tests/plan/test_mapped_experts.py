"""What `plan fit` says of experts that stay in the file is what the engine decides."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headrace import LLM
from headrace.catalog import Catalog
from headrace.cli.plan.group import plan as plan_command
from headrace.config.settings import EngineConfig
from headrace.engine.memory import kv_memory, weight_memory
from headrace.engine.memory.expert_memory import WeightPlan, plan_weights
from headrace.plan.machine import hardware_memory
from headrace.plan.machine.hardware_memory import DeviceMemory
from headrace.plan.memory.fit import Fit, fit
from headrace.plan.memory.kv_cache import kv_kind
from headrace.plan.memory.memory import Load, Storage
from headrace.plan.model.model_shape import ModelShape, shape_of_checkpoint
from headrace.plan.page.fit_part import fit_part
from tests.engine.mock import real_ops
from tests.tiny import write_tiny_gguf, write_tiny_hf

CATALOG = Catalog.load()
KIND = kv_kind("F32", CATALOG)
STORAGE = Storage(None, KIND, KIND)
LOAD = Load(128, users=2, step_tokens=64)
EXPERTS: dict[str, Any] = {"num_experts": 64, "moe_intermediate_size": 256}


@pytest.fixture
def shape(tmp_path: Path) -> ModelShape:
    return shape_of_checkpoint(write_tiny_gguf(tmp_path, "qwen3_moe", "Q8_0", **EXPERTS))


def place(memory_bytes: int) -> DeviceMemory:
    return DeviceMemory("a machine", "cpu", 1, memory_bytes, 1.0, ())


def found(shape: ModelShape, memory_bytes: int, storage: Storage = STORAGE) -> Fit:
    return fit(CATALOG, shape, place(memory_bytes), storage, LOAD)


def whole(shape: ModelShape) -> WeightPlan:
    assert shape.checkpoint is not None
    return plan_weights(
        shape.checkpoint, EngineConfig(max_num_batched_tokens=LOAD.step_tokens), 1 << 40
    )


def runtime_bytes(shape: ModelShape) -> int:
    parts = found(shape, 1 << 40).memory.components
    return round(next(part.value for part in parts if part.id == "runtime"))


def half(shape: ModelShape) -> int:
    """Memory in which half of the experts fit beside all else."""
    parts = whole(shape)
    kv_bytes = round(found(shape, 1 << 40).memory.cache.request_bytes(128) * 2)
    fixed = parts.dense_bytes + parts.scratch_bytes + kv_bytes + kv_memory.REST_BYTES
    return runtime_bytes(shape) + fixed + parts.expert_bytes // 2


def test_it_is_what_the_engine_decides(shape: ModelShape, monkeypatch: pytest.MonkeyPatch) -> None:
    real_ops("cpu")
    answer = found(shape, half(shape))
    experts = answer.expert_cache
    assert experts is not None and shape.checkpoint is not None
    assert 0 < experts.cache_bytes <= whole(shape).expert_bytes // 2
    assert experts.available_bytes == half(shape) - runtime_bytes(shape)
    settings: dict[str, Any] = {
        "kv_cache_memory_bytes": experts.kv_bytes, "max_num_batched_tokens": LOAD.step_tokens,
        "max_model_len": LOAD.context_tokens, "threads": 1,
    }  # fmt: skip
    # The machine has that memory: an engine that loads the file.
    for module in (weight_memory, kv_memory):
        monkeypatch.setattr(module, "available_memory_bytes", lambda: experts.available_bytes)
    llm = LLM(str(shape.checkpoint.path), **settings)
    assert llm.info.expert_cache_bytes == experts.cache_bytes
    assert answer.as_dict()["expert_cache"] == {
        "available_bytes": experts.available_bytes,
        "kv_bytes": experts.kv_bytes,
        "dense_bytes": whole(shape).dense_bytes,
        "scratch_bytes": whole(shape).scratch_bytes,
        "expert_bytes": whole(shape).expert_bytes,
        "cache_bytes": experts.cache_bytes,
    }


def test_it_is_said_only_where_experts_stay_in_the_file(shape: ModelShape, tmp_path: Path) -> None:
    plenty, little = found(shape, 1 << 40), found(shape, runtime_bytes(shape))
    assert (plenty.verdict, plenty.expert_cache) == ("fits", None)
    assert (little.verdict, little.expert_cache) == ("does not fit", None)
    assert plenty.as_dict()["expert_cache"] is None
    other = replace(STORAGE, weights=CATALOG.quantizations["q4-k-m"])
    assert found(shape, half(shape), other).expert_cache is None
    card = replace(place(half(shape)), kind="gpu")
    assert fit(CATALOG, shape, card, STORAGE, LOAD).expert_cache is None
    assert found(replace(shape, checkpoint=None), half(shape)).expert_cache is None
    dense = shape_of_checkpoint(write_tiny_gguf(tmp_path, "llama"))
    assert found(dense, runtime_bytes(dense)).expert_cache is None


def test_table_json_and_page_say_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a folder, on this machine, at a context that leaves no memory for all experts."""
    folder = write_tiny_hf(tmp_path, "qwen3_moe", "BF16", **EXPERTS)
    shape = shape_of_checkpoint(folder)
    usable = half(shape)
    monkeypatch.setattr(hardware_memory, "this_machine", lambda: ("cpu", 2, round(usable / 0.9)))
    words = ["fit", str(folder), "--hardware", "cpu", "--kv-type", "F32", "--context", "128",
             "--users", "2", "--step-tokens", "64"]  # fmt: skip

    def printed(*more: str) -> str:
        return CliRunner().invoke(plan_command, [*words, *more], catch_exceptions=False).stdout

    stated = json.loads(printed("--json"))
    assert stated["verdict"] == "fits with mapped experts"
    cache, expert_bytes = (stated["expert_cache"][key] for key in ("cache_bytes", "expert_bytes"))
    assert 0 < cache < expert_bytes == whole(shape).expert_bytes
    shown = printed()
    assert "fits with its experts in the file" in shown
    line = f"headrace serve leaves the experts ({expert_bytes / 1e9:.2f} GB "
    assert line in shown and f"holds {cache / 1e9:.2f} GB " in " ".join(shown.split())
    part = fit_part(found(shape, usable))
    assert [text for text, _ in part.verdicts if "in the mapped file" in text]
