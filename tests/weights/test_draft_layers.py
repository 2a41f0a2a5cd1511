"""Layers that predict further tokens: kept in both containers, and not run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from headrace.errors import UnsupportedModelError
from headrace.models import load_model
from headrace.ops import make_ops
from headrace.weights.architectures import ARCHITECTURES
from headrace.weights.conversion.convert import write_gguf, write_hf_folder
from headrace.weights.open import open_checkpoint
from headrace.weights.safetensors.writer import write_safetensors_file
from headrace.weights.tensors.source import source_of_tensor
from tests.tiny import (
    to_tensor,
    write_tiny_hf,
)

FAMILY = "glm4_moe"
GLM4_MOE = ARCHITECTURES[FAMILY]


DRAFT = {
    "eh_proj": (64, 128), "enorm": (64,), "hnorm": (64,), "embed_tokens": (288, 64),
    "shared_head.head": (288, 64), "shared_head.norm": (64,),
}  # fmt: skip


def with_draft_layer(tmp_path: Path) -> Path:
    """A folder whose third layer predicts one more token, as GLM-4.5's last one does."""
    folder = write_tiny_hf(tmp_path, FAMILY)
    tensors = dict(open_checkpoint(folder).tensors)
    for name, shape in DRAFT.items():
        full = f"model.layers.2.{name}.weight"
        tensors[full] = to_tensor(full, np.ones(shape, np.float32), "F32")
    config = json.loads((folder / "config.json").read_text())
    config |= {"num_hidden_layers": 2, "num_nextn_predict_layers": 1}
    (folder / "config.json").write_text(json.dumps(config))
    sources = [source_of_tensor(tensor, name, tensor.codec) for name, tensor in tensors.items()]
    write_safetensors_file(folder / "model.safetensors", sources)
    return folder


def test_layers_that_predict_further_tokens_are_kept_and_not_run(tmp_path: Path) -> None:
    """In both containers, and back; llama.cpp counts them among the layers of a file."""
    folder = with_draft_layer(tmp_path / "a")
    write_gguf(open_checkpoint(folder), tmp_path / "m.gguf", None)
    stored = {tensor.name for tensor in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    [arch] = [kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == GLM4_MOE.name]
    drafts = [kind for kind in gguf.MODEL_TENSORS[arch] if kind.name.startswith("NEXTN_")]
    assert len(drafts) == len(DRAFT)
    assert {f"{gguf.TENSOR_NAMES[kind].format(bid=2)}.weight" for kind in drafts} <= stored
    file = open_checkpoint(tmp_path / "m.gguf")
    assert file.metadata["glm4moe.block_count"] == 3
    assert file.metadata["glm4moe.nextn_predict_layers"] == 1
    assert file.config["num_hidden_layers"] == 2
    write_hf_folder(file, tmp_path / "out")
    back = open_checkpoint(tmp_path / "out")
    first = open_checkpoint(folder)
    assert set(back.tensors) == set(file.tensors) == set(first.tensors)
    draft_bytes = sum(t.nbytes for n, t in first.tensors.items() if ".layers.2." in n)
    for checkpoint in (first, file, back):
        model = load_model(checkpoint, make_ops("reference"))
        assert model.config.num_layers == 2
        assert model.weight_bytes == first.nbytes - draft_bytes


def test_a_tensor_of_a_draft_layer_that_nobody_knows_stops_the_load(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(with_draft_layer(tmp_path))
    name = "model.layers.2.other.weight"
    strange = {name: to_tensor(name, np.ones((4, 4), np.float32), "F32")}
    with pytest.raises(UnsupportedModelError, match=name):
        load_model(
            replace(checkpoint, tensors={**checkpoint.tensors, **strange}), make_ops("reference")
        )
