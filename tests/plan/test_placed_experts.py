"""What `plan fit` says of experts beside a card: what the engine decides, or by parameters."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headrace.cli.plan.group import plan as plan_command
from headrace.config.settings import EngineConfig
from headrace.engine.memory.expert_memory import PlannedModel
from headrace.engine.memory.expert_placement import place_experts
from headrace.engine.memory.kv_memory import REST_BYTES
from headrace.plan.machine.hardware_memory import DeviceMemory
from headrace.plan.memory.fit import Fit, fit
from headrace.plan.memory.memory import Storage
from headrace.plan.model.model_shape import ModelShape, shape_of_checkpoint
from headrace.plan.page.fit_part import fit_part
from tests.engine.mock import real_ops
from tests.plan.test_mapped_experts import CATALOG, EXPERTS, LOAD, STORAGE
from tests.tiny import write_tiny_gguf

MIB = 1 << 20


@pytest.fixture
def shape(tmp_path: Path) -> ModelShape:
    real_ops("cpu")
    return shape_of_checkpoint(write_tiny_gguf(tmp_path, "qwen3_moe", "Q8_0", layers=4, **EXPERTS))


def found(
    shape: ModelShape, memory_bytes: int, storage: Storage = STORAGE, devices: int = 1, **given: Any
) -> Fit:
    card = DeviceMemory("a card", "gpu", devices, memory_bytes, 1.0, ())
    return fit(CATALOG, shape, card, storage, LOAD, **given)


def experts_of(shape: ModelShape) -> int:
    assert shape.checkpoint is not None
    tensors = shape.checkpoint.tensors.items()
    return sum(tensor.nbytes for name, tensor in tensors if ".experts." in name)


def card_without(shape: ModelShape, share: float) -> int:
    """A card that lacks the bytes of a share of the experts, by the engine's own arithmetic."""
    plan = found(shape, 1 << 40).memory
    parts = {part.id: part.value for part in plan.components}
    assert shape.checkpoint is not None
    config = EngineConfig(
        backend="torch", kv_cache_memory_bytes=round(parts["kv"]),
        max_num_batched_tokens=LOAD.step_tokens, max_num_seqs=LOAD.users,
    )  # fmt: skip
    model = [PlannedModel(shape.checkpoint, config)]
    low, high = 0, 1 << 40
    while high - low > 1:
        middle = (low + high) // 2
        try:
            fits = place_experts(model, middle, 1 << 62) is None
        except Exception:
            fits = False
        low, high = (low, middle) if fits else (middle, high)
    return round(parts["runtime"]) + high - REST_BYTES - round(share * experts_of(shape))


@pytest.mark.parametrize(("share", "layers"), [(0.2, 1), (0.5, 2), (1.0, 4)])
def test_it_is_what_the_engine_decides(shape: ModelShape, share: float, layers: int) -> None:
    answer = found(shape, card_without(shape, share))
    assert not answer.memory.fits
    placed = answer.placed
    assert placed is not None and answer.verdict == "fits with experts on the CPU"
    assert (placed.layers, placed.all_layers) == (layers, 4)
    assert placed.expert_bytes == layers * experts_of(shape) // 4
    assert answer.as_dict()["cpu_experts"]["layers"] == layers


def test_the_memory_of_the_machine_is_checked_where_it_is_known(shape: ModelShape) -> None:
    card = round(found(shape, 1 << 40).memory.needed.value) - experts_of(shape) // 3
    unknown = found(shape, card, replace(STORAGE, weights=CATALOG.quantizations["q8-0"]))
    assert unknown.placed is not None and unknown.placed.host_bytes is None and unknown.placed.fits
    for host, fits in (
        (unknown.placed.expert_bytes, True),
        (unknown.placed.expert_bytes - 1, False),
    ):
        answer = found(shape, card, replace(STORAGE, weights=CATALOG.quantizations["q8-0"]),
                       host_bytes=host)  # fmt: skip
        assert answer.placed is not None and answer.placed.fits is fits
        said = " ".join(text for text, _ in fit_part(answer).verdicts)
        assert ("the others stay in the file" in said) is not fits
        assert f"--n-cpu-moe {answer.placed.layers}" in said


def test_nothing_is_placed_where_it_fits_or_nothing_helps(shape: ModelShape) -> None:
    assert found(shape, 1 << 40).placed is None
    assert found(shape, 1 * MIB).placed is None
    assert found(shape, 1 * MIB).verdict == "does not fit"
    card = round(found(shape, 1 << 40).memory.needed.value) - experts_of(shape) // 3
    assert found(shape, card // 2, devices=2).placed is None


def test_a_model_of_the_catalog_on_a_small_card() -> None:
    """By parameters: each layer that goes frees a forty-eighth of the experts, to the last one."""
    command = ["fit", "qwen3-30b-a3b", "--hardware", "rtx-4060-ti-16gb", "--quantization", "q4-k-m"]
    result = CliRunner().invoke(plan_command, [*command, "--json", "--host-memory", "64G"])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.output)
    placed = answer["cpu_experts"]
    assert answer["verdict"] == "fits with experts on the CPU" and placed["fits"]
    of_layer = placed["expert_bytes"] / placed["layers"]
    assert placed["expert_bytes"] >= answer["missing_bytes"] > placed["expert_bytes"] - of_layer
    shown = CliRunner().invoke(plan_command, command).output
    assert f"--n-cpu-moe {placed['layers']}" in shown and "--host-memory says how much" in shown
