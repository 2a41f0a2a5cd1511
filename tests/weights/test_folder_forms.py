"""Names and forms that folders of InternLM 2, StableLM and GPT-NeoX have, both ways."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from headrace.errors import CheckpointError
from headrace.models import load_model
from headrace.ops import make_ops
from headrace.weights.conversion.convert import write_hf_folder
from headrace.weights.open import open_checkpoint
from tests.models.cases import Session, prompt
from tests.tiny import tiny_checkpoint, write_tiny_gguf, write_tiny_hf


def stored(folder: Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return dict(load_file(folder / "model.safetensors"))


def store(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    from safetensors.numpy import save_file

    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})


def test_internlm2_has_heads_of_q_beside_those_of_k_and_v(tmp_path: Path) -> None:
    """As its authors' code reads them: [groups, heads of Q + 2, head_dim]."""
    arrays = stored(write_tiny_hf(tmp_path, "internlm2"))
    assert "output.weight" in arrays and "model.tok_embeddings.weight" in arrays
    at = "model.layers.1"
    names = {name.removeprefix(f"{at}.") for name in arrays if name.startswith(at)}
    assert names == {
        "attention.wqkv.weight", "attention.wo.weight", "attention_norm.weight", "ffn_norm.weight",
        *(f"feed_forward.w{number}.weight" for number in (1, 2, 3)),
    }  # fmt: skip
    memory = tiny_checkpoint("internlm2").tensors
    groups = arrays[f"{at}.attention.wqkv.weight"].reshape(2, 2 + 2, 16, 64)
    parts = {"q": groups[:, :2], "k": groups[:, 2], "v": groups[:, 3]}
    for letter, rows in parts.items():
        expected = memory[f"{at}.self_attn.{letter}_proj.weight"].to_f32()
        assert np.array_equal(rows.reshape(-1, 64), expected), letter
    for theirs, ours in (("w1", "gate"), ("w3", "up"), ("w2", "down")):
        expected = memory[f"{at}.mlp.{ours}_proj.weight"].to_f32()
        assert np.array_equal(arrays[f"{at}.feed_forward.{theirs}.weight"], expected)


def test_the_12b_of_stablelm_has_a_vector_for_each_head(tmp_path: Path) -> None:
    shape = {"use_parallel_residual": True, "qk_layernorm": True}
    arrays = stored(write_tiny_hf(tmp_path, "stablelm", **shape))
    at = "model.layers.0.self_attn"
    expected = tiny_checkpoint("stablelm", **shape).tensors[f"{at}.q_norm.weight"].to_f32()
    assert expected.shape == (4, 16)
    for head in range(4):
        found = arrays[f"{at}.q_layernorm.norms.{head}.weight"]
        assert np.array_equal(found, expected[head])
    assert f"{at}.k_layernorm.norms.1.weight" in arrays


def test_old_and_new_folders_of_gpt_neox_are_the_same_model(tmp_path: Path) -> None:
    ops, folder = make_ops("reference"), write_tiny_hf(tmp_path, "gpt_neox")
    arrays = stored(folder)
    assert "embed_out.weight" in arrays and "lm_head.weight" not in arrays
    masks = {f"gpt_neox.layers.{layer}.attention.bias": np.ones((1, 1, 8, 8), np.float32)
             for layer in range(2)}  # fmt: skip
    logits = []
    for head, more in (("embed_out", masks), ("lm_head", {})):
        renamed = {name.replace("embed_out", head): values for name, values in arrays.items()}
        store(folder, renamed | more)
        model = load_model(open_checkpoint(folder), ops)
        logits.append(Session(model, ops).feed(prompt(0)[:20]))
    assert np.array_equal(*logits)


@pytest.mark.parametrize("family", ["gpt_neox", "internlm2", "stablelm"])
def test_a_folder_written_from_a_gguf_file_has_its_form_again(tmp_path: Path, family: str) -> None:
    """Names, values and keys of config.json, through both writers."""
    folder = write_tiny_hf(tmp_path, family)
    write_hf_folder(open_checkpoint(write_tiny_gguf(tmp_path, family)), tmp_path / "out")
    first, back = stored(folder), stored(tmp_path / "out")
    assert first.keys() == back.keys()
    assert all(np.array_equal(back[name], first[name]) for name in first)
    if family == "gpt_neox":
        config = json.loads((tmp_path / "out" / "config.json").read_text())
        assert (config["rotary_emb_base"], config["rotary_pct"]) == (10000.0, 0.25)
        assert config["use_parallel_residual"] is True and "rope_theta" not in config


def test_damaged_folders_are_refused_by_name(tmp_path: Path) -> None:
    folder = write_tiny_hf(tmp_path, "stablelm", use_parallel_residual=True, qk_layernorm=True)
    arrays = stored(folder)
    name = "model.layers.0.self_attn.q_layernorm.norms"
    store(folder, {key: values for key, values in arrays.items() if key != f"{name}.1.weight"})
    with pytest.raises(CheckpointError, match=r"head 1 of .*layers.0.self_attn.q_norm.* missing"):
        open_checkpoint(folder)
    store(folder, arrays | {f"{name}.2.weight": np.ones(8, np.float32)})
    with pytest.raises(CheckpointError, match="heads must be alike"):
        open_checkpoint(folder)
    other = write_tiny_hf(tmp_path, "internlm2")
    arrays = stored(other)
    wqkv = "model.layers.1.attention.wqkv.weight"
    store(other, arrays | {wqkv: arrays[wqkv][:-1]})
    with pytest.raises(CheckpointError, match=r"wqkv.weight' has shape .* need 128 rows"):
        open_checkpoint(other)
    store(other, arrays | {"lm_head.weight": arrays["output.weight"]})
    with pytest.raises(CheckpointError, match=r"are the same one, lm_head\.weight"):
        open_checkpoint(other)
