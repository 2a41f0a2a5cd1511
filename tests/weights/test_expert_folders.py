"""Experts in folders: apart, or all of a layer in one tensor, as transformers reads them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import CheckpointError
from headrace.weights.architectures import ARCHITECTURES
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.conversion.convert import write_gguf, write_hf_folder
from headrace.weights.open import open_checkpoint
from headrace.weights.safetensors.file import read_safetensors
from headrace.weights.safetensors.writer import write_safetensors_file
from headrace.weights.tensors.expert_stacks import MAX_EXPERTS
from headrace.weights.tensors.source import source_of_array
from tests.tiny import (
    tiny_checkpoint,
    tiny_config,
    tiny_shapes,
    write_tiny_hf,
)

FAMILY = "glm4_moe"


def as_fused(checkpoint: Checkpoint) -> dict[str, Any]:
    """Names and values as transformers has them in memory: gate and up of all experts as one."""
    names: dict[str, dict[int, Any]] = {}
    plain: dict[str, Any] = {}
    architecture = ARCHITECTURES[checkpoint.config["model_type"]]
    for name, tensor in checkpoint.tensors.items():
        match = re.fullmatch(r"(model\.layers\.\d+)\.(.+\.experts)\.(\d+)\.(.+)\.weight", name)
        if match is None:
            plain[name] = tensor.to_f32()
            continue
        layer, experts, number, module = match.groups()
        for fused, parts in architecture.folder_experts.items():
            part = f"{experts}.{{}}.{module}.weight"
            if part in parts:
                members = names.setdefault(f"{layer}.{fused}", {})
                members[int(number) * len(parts) + parts.index(part)] = tensor.to_f32()
    for name, members in names.items():
        matrices = [members[place] for place in sorted(members)]
        parts = 2 if "gate_up" in name or "input" in name else 1
        rows, columns = matrices[0].shape
        stack = np.concatenate(matrices).reshape(len(matrices) // parts, parts * rows, columns)
        plain[name] = stack
    return plain


@pytest.mark.parametrize(
    "family", ["glm4_moe", "qwen3_moe", "qwen2_moe", "olmoe", "mixtral", "granitemoe"]
)
def test_a_folder_with_all_experts_as_one_tensor_is_the_same_model(
    family: str, tmp_path: Path
) -> None:
    folder = write_tiny_hf(tmp_path, family)
    first = open_checkpoint(folder)
    tensors = {name: t.to_f32() for name, t in first.tensors.items()}
    fused = as_fused(first)
    assert sum(array.ndim == 3 for array in fused.values()) >= 4
    sources = [source_of_array(array, name) for name, array in fused.items()]
    write_safetensors_file(folder / "model.safetensors", sources)
    back = open_checkpoint(folder)
    assert set(back.tensors) == set(tensors)
    for name, tensor in back.tensors.items():
        assert np.array_equal(tensor.to_f32(), tensors[name]), name
        assert tensor.data.base is not None, name


def test_folders_of_granite_hold_all_experts_as_one_tensor(tmp_path: Path) -> None:
    """The published form, which is written again."""
    write_hf_folder(tiny_checkpoint("granitemoe"), tmp_path / "out")
    stored = read_safetensors(tmp_path / "out" / "model.safetensors").tensors
    shapes = tiny_shapes(tiny_config("granitemoe"))
    assert {name: tensor.shape for name, tensor in stored.items()} == shapes


@pytest.mark.parametrize("shape", [(4, 63, 64), (256, 64), (MAX_EXPERTS + 1, 2, 1)])
def test_stacks_of_a_folder_that_are_none(tmp_path: Path, shape: tuple[int, ...]) -> None:
    folder = write_tiny_hf(tmp_path, FAMILY)
    name = "model.layers.1.mlp.experts.gate_up_proj"
    sources = [source_of_array(np.zeros(shape, np.float32), name)]
    write_safetensors_file(folder / "model.safetensors", sources)
    with pytest.raises(CheckpointError, match=r"mlp\.experts\.gate_up_proj' has shape"):
        open_checkpoint(folder)


def test_an_expert_that_is_in_a_stack_and_apart_is_refused(tmp_path: Path) -> None:
    folder = write_tiny_hf(tmp_path, FAMILY)
    tensors = {name: t.to_f32() for name, t in open_checkpoint(folder).tensors.items()}
    name = "model.layers.1.mlp.experts.down_proj"
    tensors[name] = np.zeros((4, 64, 32), np.float32)
    sources = [source_of_array(array, key) for key, array in tensors.items()]
    write_safetensors_file(folder / "model.safetensors", sources)
    with pytest.raises(CheckpointError, match=r"experts\.0\.down_proj\.weight' is there twice"):
        open_checkpoint(folder)


@pytest.mark.torch
@pytest.mark.parametrize(
    "family",
    ["glm4_moe", "qwen3_moe", "qwen2_moe", "olmoe", "mixtral", "granitemoe", "phimoe", "gpt_oss"],
)
def test_a_folder_s_tensors_are_what_transformers_loads(family: str, tmp_path: Path) -> None:
    """Its own code joins single experts; ours went through a GGUF file before."""
    torch = pytest.importorskip("torch", reason="transformers needs torch to read models")
    transformers = pytest.importorskip("transformers", reason="compares with transformers")
    folder = write_tiny_hf(tmp_path, family)
    write_gguf(open_checkpoint(folder), tmp_path / "m.gguf", "F32")
    write_hf_folder(open_checkpoint(tmp_path / "m.gguf"), tmp_path / "out")
    models = [
        transformers.AutoModelForCausalLM.from_pretrained(
            path, local_files_only=True, dtype="float32"
        )
        for path in (folder, tmp_path / "out")
    ]
    one, two = (dict(model.state_dict()) for model in models)
    assert set(one) == set(two)
    assert all(torch.equal(one[name], two[name]) for name in one)
    with torch.no_grad():
        logits = [model(torch.arange(40)[None]).logits for model in models]
    assert torch.equal(*logits)
