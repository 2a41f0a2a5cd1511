"""GPT-2, StarCoder 1 and 2, Falcon and Phi-3: how their files store things."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from headrace.errors import CheckpointError, ConfigError, UnsupportedModelError
from headrace.models import load_model, read_config
from headrace.ops.interface import Ops
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.open import open_checkpoint
from headrace.weights.tensors.tensor import Tensor
from tests.models.cases import CASES, Session, prompt
from tests.models.test_batches import run_mixed
from tests.tiny import tiny_checkpoint, tiny_config, to_tensor, write_tiny_gguf, write_tiny_hf
from tests.tiny_families.phi3 import LONG, SHORT
from tests.weights.test_architectures import opened


def logits(checkpoint: Checkpoint, ops: Ops, count: int = 40, **options: Any) -> Any:
    return Session(load_model(checkpoint, ops, **options), ops).feed(prompt(0)[:count])


@pytest.mark.parametrize("name", ["falcon-7b", "falcon-40b", "gpt-bigcode-heads"])
def test_rows_of_q_k_and_v_in_the_wrong_order_would_be_seen(name: str, reference: Ops) -> None:
    """But for one head of K and V, where both orders are the same."""
    right = tiny_checkpoint(CASES[name].family, **CASES[name].shape)
    assert right.conventions.qkv_layout == "grouped"
    wrong = replace(right, conventions=replace(right.conventions, qkv_layout="joined"))
    one, other = (logits(item, reference) for item in (right, wrong))
    assert np.array_equal(one, other) is (name == "falcon-7b")


def test_matrices_stored_in_out_are_turned_and_blocks_are_not(reference: Ops) -> None:
    right = tiny_checkpoint("gpt2")
    name = "transformer.h.0.attn.c_proj.weight"
    square = right.tensors[name]
    assert square.shape == (64, 64)
    turned = {**right.tensors, name: square.transposed()}
    one, other = (logits(item, reference) for item in (right, replace(right, tensors=turned)))
    assert np.abs(one - other).max() > 0.1
    blocks = {**right.tensors, name: to_tensor(name, square.to_f32(), "Q8_0")}
    with pytest.raises(UnsupportedModelError, match=rf"{name} is Q8_0 and stored \(in, out\)"):
        load_model(replace(right, tensors=blocks), reference)


def test_learned_positions_bound_a_request(reference: Ops) -> None:
    model = load_model(tiny_checkpoint("gpt2"), reference)
    assert model.max_positions == 256
    ids = [7] * 20
    rows = Session(model, reference).feed(ids)
    # The same token all along: only its position tells one row from the next.
    assert all(np.abs(rows[i] - rows[i + 1]).max() > 0.01 for i in range(19))
    with pytest.raises(ConfigError, match=r"--max-model-len 257 .* 256"):
        load_model(tiny_checkpoint("gpt2"), reference, max_positions=257)
    short = tiny_checkpoint("gpt2")
    short = replace(short, config={**short.config, "n_positions": 255})
    with pytest.raises(CheckpointError, match=r"wpe\.weight has shape \[256, 64\].*\[255, 64\]"):
        load_model(short, reference)


@pytest.fixture
def gpt2_folder(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    folder = write_tiny_hf(tmp_path, "gpt2")
    return folder, load_file(folder / "model.safetensors")


def save(folder: Path, arrays: dict[str, Any]) -> None:
    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})


def test_gpt2_as_first_published_has_bare_names_and_masks(
    gpt2_folder: tuple[Path, dict[str, Any]], reference: Ops
) -> None:
    folder, arrays = gpt2_folder
    plain = open_checkpoint(folder)
    expected, nbytes = logits(plain, reference), plain.nbytes
    bare = {name.removeprefix("transformer."): values for name, values in arrays.items()}
    for mask in (np.float32, np.bool_, np.uint8):
        for layer in range(2):
            bare[f"h.{layer}.attn.bias"] = np.tri(256, dtype=mask)[None, None]
            bare[f"h.{layer}.attn.masked_bias"] = np.array(-1e4, np.float32)
        save(folder, bare)
        model = load_model(open_checkpoint(folder), reference)
        assert np.array_equal(Session(model, reference).feed(prompt(0)[:40]), expected)
        # Masks are no weights: no step reads them.
        assert model.weight_bytes == nbytes


def test_a_head_that_repeats_the_embedding_is_tied_and_another_is_refused(
    gpt2_folder: tuple[Path, dict[str, Any]], reference: Ops
) -> None:
    folder, arrays = gpt2_folder
    expected = logits(open_checkpoint(folder), reference)
    table = arrays["transformer.wte.weight"]
    save(folder, {**arrays, "lm_head.weight": table})
    config = json.loads((folder / "config.json").read_text())
    del config["tie_word_embeddings"]
    (folder / "config.json").write_text(json.dumps(config))
    assert np.array_equal(logits(open_checkpoint(folder), reference), expected)
    save(folder, {**arrays, "lm_head.weight": table + 1})
    with pytest.raises(CheckpointError, match=r"lm_head\.weight differs"):
        load_model(open_checkpoint(folder), reference)


def test_longrope_s_list_follows_the_longest_request(reference: Ops) -> None:
    """Up to the original length the short list, beyond it the long one, from the first token on."""

    def phi3(short: list[float], long: list[float]) -> Checkpoint:
        lists = {"type": "longrope", "short_factor": short, "long_factor": long}
        return tiny_checkpoint("phi3", rope_scaling=lists, original_max_position_embeddings=64)

    usual = phi3(SHORT, LONG)
    long = logits(usual, reference)
    short = logits(usual, reference, max_positions=64)
    assert np.array_equal(long, logits(phi3(LONG, LONG), reference))
    assert np.array_equal(short, logits(phi3(SHORT, SHORT), reference))
    assert np.abs(long - short).max() > 0.01


def split(checkpoint: Checkpoint, name: str, sizes: dict[str, int]) -> Checkpoint:
    """With one fused matrix of each layer as several, in this order."""
    tensors: dict[str, Tensor] = {}
    for key, tensor in checkpoint.tensors.items():
        if name not in key:
            tensors[key] = tensor
            continue
        start = 0
        for part, rows in sizes.items():
            new = key.replace(name, part)
            tensors[new] = to_tensor(new, tensor.to_f32()[start : start + rows], "F32")
            start += rows
        assert start == tensor.shape[0]
    return replace(checkpoint, tensors=tensors)


def test_fused_and_separate_projections_are_the_same(reference: Ops) -> None:
    fused = tiny_checkpoint("phi3")
    apart = split(fused, "qkv_proj", {"q_proj": 64, "k_proj": 32, "v_proj": 32})
    apart = split(apart, "gate_up_proj", {"gate_proj": 96, "up_proj": 96})
    assert np.array_equal(logits(fused, reference), logits(apart, reference))


def test_fused_rows_of_interleaved_files_are_put_in_order(reference: Ops) -> None:
    """As in GLM-4's first form: Q, K and V as one matrix, neighbours rotated together."""
    apart = tiny_checkpoint("glm")
    assert apart.conventions.rope_layout == "interleaved"
    tensors = dict(apart.tensors)
    for layer in range(2):
        at = f"model.layers.{layer}.self_attn"
        for kind in ("weight", "bias"):
            parts = [tensors.pop(f"{at}.{letter}_proj.{kind}") for letter in "qkv"]
            values = np.concatenate([part.to_f32() for part in parts])
            name = f"{at}.qkv_proj.{kind}"
            tensors[name] = to_tensor(name, values, "F32")
    fused = replace(apart, tensors=tensors)
    assert np.array_equal(logits(apart, reference), logits(fused, reference))


def test_falcon_s_forms_in_gguf(tmp_path: Path) -> None:
    """GGUF has one name for the norm of the MLP, and tells the forms apart by the other's."""
    opened: Callable[[str], Checkpoint] = lambda name: open_checkpoint(  # noqa: E731
        write_tiny_gguf(tmp_path / name, "falcon", **CASES[name].shape)
    )
    old, new, eleven = (opened(name) for name in ("falcon-7b", "falcon-40b", "falcon-11b"))
    assert "transformer.h.0.input_layernorm.weight" in old.tensors
    assert {"transformer.h.0.ln_attn.weight", "transformer.h.0.ln_mlp.bias"} <= set(new.tensors)
    assert "new_decoder_architecture" not in old.config
    for checkpoint, norms in ((new, 2), (eleven, 1)):
        assert checkpoint.config["new_decoder_architecture"] is True
        assert checkpoint.config["num_ln_in_parallel_attn"] == norms
        assert checkpoint.config["num_kv_heads"] == 2
    assert old.metadata["falcon.attention.head_count_kv"] == 1
    assert old.metadata["falcon.feed_forward_length"] == 256
    assert old.conventions.qkv_layout == "joined"


def test_learned_positions_stay_f32_in_gguf(tmp_path: Path) -> None:
    codecs = {
        name: tensor.codec.name
        for name, tensor in open_checkpoint(
            write_tiny_gguf(tmp_path, "gpt2", "Q8_0")
        ).tensors.items()
    }
    assert codecs["transformer.wpe.weight"] == "F32"
    assert codecs["transformer.wte.weight"] == codecs["transformer.h.0.mlp.c_fc.weight"] == "Q8_0"


@pytest.mark.parametrize(
    ("family", "changes", "pattern"),
    [
        ("gpt2", {"n_ctx": 100}, "n_ctx = 100"),
        ("gpt_bigcode", {"activation_function": None}, "activation_function = 'gelu_pytorch_tanh'"),
        ("falcon", {"bias": True}, "'bias' is True"),
        ("falcon", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "dynamic"),
        ("starcoder2", {"norm_type": "rms_norm"}, "'norm_type' is 'rms_norm'"),
        ("phi3", {"mlp_bias": True}, "'mlp_bias' is True"),
    ],
)
def test_what_a_gguf_file_cannot_state_is_not_written(
    tmp_path: Path, family: str, changes: dict[str, Any], pattern: str
) -> None:
    config = tiny_config(family)
    assert all(config.get(key) != value for key, value in changes.items())
    with pytest.raises(UnsupportedModelError, match=pattern):
        write_tiny_gguf(tmp_path, family, **changes)


@pytest.mark.parametrize(
    ("family", "kv_heads", "pattern"),
    [
        ("gpt2", 2, "'gpt2.attention.head_count_kv' is 2; it must be head_count 4"),
        ("gpt_bigcode", 2, "'starcoder.attention.head_count_kv' is 2; 1 or head_count 4"),
    ],
)
def test_heads_a_family_cannot_have_are_refused(
    tmp_path: Path, family: str, kv_heads: int, pattern: str
) -> None:
    with pytest.raises(CheckpointError, match=pattern):
        opened(tmp_path, family, {"attention.head_count_kv": kv_heads})


def test_heads_that_a_gguf_file_leaves_out(tmp_path: Path) -> None:
    """llama.cpp takes as many of K and V as of Q."""
    bigcode = opened(tmp_path, "gpt_bigcode", {"attention.head_count_kv": ...})
    assert bigcode.config["multi_query"] is False
    falcon = opened(tmp_path, "falcon", {"attention.head_count_kv": ...})
    assert read_config(falcon).attention.num_kv_heads == 4
    same = opened(tmp_path, "gpt2", {"attention.head_count_kv": 4})
    assert read_config(same).attention.num_kv_heads == 4


def test_a_window_of_zero_is_none(tmp_path: Path) -> None:
    """How Phi-4's GGUF files say that theirs is null."""
    assert read_config(opened(tmp_path, "phi3", {"attention.sliding_window": 0})).windows == ()
    windowed = opened(tmp_path, "phi3", {"attention.sliding_window": 24})
    assert read_config(windowed).windows == (24, 24)


@pytest.mark.parametrize("name", ["gpt2", "gpt-bigcode", "starcoder2-window", "falcon-40b"])
def test_every_logit_is_that_of_the_request_alone(name: str, ops: Ops) -> None:
    """Learned positions, norms with biases, MLPs without a gate, whatever else is in the step."""
    model = load_model(tiny_checkpoint(CASES[name].family, **CASES[name].shape), ops)
    rng = np.random.default_rng(7)
    requests = [rng.integers(0, 288, length).tolist() for length in (1, 17, 40, 30)]
    alone = [Session(model, ops).feed(ids) for ids in requests]
    for mine, expected in zip(run_mixed(model, ops, requests, "f32", 12), alone, strict=True):
        assert np.array_equal(mine, expected)
