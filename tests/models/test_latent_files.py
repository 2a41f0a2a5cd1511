"""Matrices of heads in latent attention: split in GGUF files, joined in folders and older files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import CheckpointError
from headrace.models import load_model
from headrace.ops.interface import Ops
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.gguf.split import read_gguf_model
from headrace.weights.gguf.writer import write_gguf_file
from headrace.weights.open import open_checkpoint
from headrace.weights.tensors.latent_heads import with_joined_heads, with_split_heads
from headrace.weights.tensors.source import source_of_tensor
from tests.models.cases import Session, prompt
from tests.tiny import tiny_checkpoint, to_tensor, write_tiny_gguf


@pytest.mark.parametrize("codec", ["F32", "F16", "BF16"])
def test_heads_are_split_and_joined_without_loss(codec: str) -> None:
    checkpoint = tiny_checkpoint("deepseek_v3", codec)
    halves = dict(with_split_heads(checkpoint.tensors, checkpoint.config))
    shapes = {name.rpartition("self_attn.")[2]: halves[name].shape for name in halves}
    assert shapes["k_b_proj.weight"] == (4, 64, 32) and shapes["v_b_proj.weight"] == (4, 32, 64)
    again = dict(with_joined_heads(halves, checkpoint.config))
    assert again.keys() == checkpoint.tensors.keys()
    for name, tensor in checkpoint.tensors.items():
        assert again[name].codec is tensor.codec and (again[name].data == tensor.data).all()


def test_heads_of_another_shape_are_refused() -> None:
    checkpoint = tiny_checkpoint("deepseek_v3")
    config = {**checkpoint.config, "v_head_dim": 16}
    with pytest.raises(CheckpointError, match="kv_b_proj"):
        dict(with_split_heads(checkpoint.tensors, config))
    halves = dict(with_split_heads(checkpoint.tensors, checkpoint.config))
    with pytest.raises(CheckpointError, match="k_b_proj"):
        dict(with_joined_heads(halves, config))
    del halves["model.layers.0.self_attn.v_b_proj.weight"]
    with pytest.raises(CheckpointError, match="v_b_proj"):
        dict(with_joined_heads(halves, checkpoint.config))
    with pytest.raises(CheckpointError, match="num_attention_heads is None"):
        dict(with_split_heads(checkpoint.tensors, {}))


@pytest.mark.parametrize("codec", ["F32", "Q8_0"])
def test_files_with_joined_heads_are_read(codec: str, reference: Ops, tmp_path: Path) -> None:
    """As GGUF files from before heads were split hold them: keys are decoded, values stay."""
    new = open_checkpoint(write_tiny_gguf(tmp_path, "deepseek_v3"))
    joined = dict(with_joined_heads(new.tensors, new.config))
    stored = {
        name: to_tensor(name, tensor.to_f32(), codec)
        if name.endswith("kv_b_proj.weight")
        else tensor
        for name, tensor in joined.items()
    }
    exact = {
        name: to_tensor(name, tensor.to_f32(), "F32")
        if name.endswith("kv_b_proj.weight")
        else tensor
        for name, tensor in stored.items()
    }
    ids = prompt(0)[:24]
    old, plain = (
        Session(load_model(replace(new, tensors=tensors), reference), reference).feed(ids)
        for tensors in (stored, exact)
    )
    bound = 0.0 if codec == "F32" else 0.05
    assert np.abs(old - plain).max() <= bound * np.abs(plain).max()


def opened(tmp_path: Path, family: str, changes: dict[str, Any]) -> Checkpoint:
    """A tiny GGUF file with changes to its own metadata (... removes a key), opened."""
    file = read_gguf_model(write_tiny_gguf(tmp_path, family))
    entries: dict[str, Any] = {key: file.metadata.typed(key) for key in file.metadata}
    for key, value in changes.items():
        entries[f"deepseek2.{key}"] = value
    entries = {key: value for key, value in entries.items() if value is not ...}
    sources = [
        source_of_tensor(tensor, name, tensor.codec, None) for name, tensor in file.tensors.items()
    ]
    path = tmp_path / "changed.gguf"
    write_gguf_file(path, entries, sources)
    return open_checkpoint(path)


def test_older_files_state_heads_as_they_were_trained(reference: Ops, tmp_path: Path) -> None:
    """One key of the width for K and V each, as many heads of K as of Q, and joined matrices."""
    new = opened(tmp_path / "new", "deepseek_v3", {})
    old = opened(
        tmp_path / "old",
        "deepseek_v3",
        {
            "attention.key_length_mla": ..., "attention.value_length_mla": ...,
            "attention.key_length": 48, "attention.value_length": 32, "attention.head_count_kv": 4,
        },
    )  # fmt: skip
    assert old.config == new.config
    # Without a word of how experts are scored, it is by a softmax.
    assert opened(tmp_path / "v2", "deepseek_v2", {"expert_gating_func": ...}).config == (
        opened(tmp_path / "v2-new", "deepseek_v2", {}).config
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"attention.key_length": 81}, "attention.key_length' is 81; 80 is required"),
        ({"attention.value_length": 65}, "attention.value_length' is 65; 64 is required"),
        ({"attention.head_count_kv": 4}, "attention.head_count_kv' is 4; 1 is required"),
        ({"attention.key_length_mla": 16}, "more than the 16 rotated dimensions"),
        ({"attention.value_length_mla": ...}, "the width of a head's output is required"),
        ({"expert_weights_norm": 1}, "true or false is required"),
        ({"expert_group_count": -1}, "expert_group_count"),
    ],
)
def test_widths_that_do_not_agree_stop_the_opening(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=words):
        opened(tmp_path, "deepseek_v3", change)
