"""GPT-2, StarCoder 1 and 2, Falcon and Phi-3: their configs, and how their files store things."""

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
from headrace.models import DecoderConfig, load_model, read_config
from headrace.ops.interface import Ops
from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from headrace.weights.open import open_checkpoint
from headrace.weights.tensor import Tensor
from tests.models.cases import CASES, Session, prompt
from tests.models.test_batches import run_mixed
from tests.tiny import tiny_checkpoint, tiny_config, to_tensor, write_tiny_gguf, write_tiny_hf
from tests.tiny_families.phi3 import LONG, SHORT
from tests.weights.test_architectures import opened

# What published configs say, keys of no effect left out where a test of its own has them.
GPT2 = {
    "model_type": "gpt2", "activation_function": "gelu_new", "attn_pdrop": 0.1, "n_ctx": 1024,
    "layer_norm_epsilon": 1e-5, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
    "summary_activation": None, "summary_first_dropout": 0.1, "summary_proj_to_labels": True,
    "summary_type": "cls_index", "summary_use_proj": True, "vocab_size": 50257,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "reorder_and_upcast_attn": False, "scale_attn_by_inverse_layer_idx": False,
}  # fmt: skip
STARCODER = {
    "model_type": "gpt_bigcode", "activation_function": "gelu", "multi_query": True,
    "attention_softmax_in_fp32": True, "scale_attention_softmax_in_fp32": True, "n_embd": 6144,
    "n_head": 48, "n_inner": 24576, "n_layer": 40, "n_positions": 8192, "inference_runner": 0,
    "pad_key_length": True, "pre_allocate_kv_cache": False, "validate_runner_input": True,
    "max_batch_size": None, "layer_norm_epsilon": 1e-5, "vocab_size": 49152,
}  # fmt: skip
STARCODER2 = {
    "model_type": "starcoder2", "activation_function": "gelu", "hidden_act": "gelu_pytorch_tanh",
    "hidden_size": 3072, "intermediate_size": 12288, "layer_norm_epsilon": 1e-5,
    "max_position_embeddings": 16384, "mlp_type": "default", "norm_epsilon": 1e-5,
    "norm_type": "layer_norm", "num_attention_heads": 24, "num_hidden_layers": 30,
    "num_key_value_heads": 2, "rope_theta": 999999.4420358813, "scale_attn_weights": True,
    "sliding_window": 4096, "use_bias": True, "vocab_size": 49152, "residual_dropout": 0.1,
}  # fmt: skip
FALCON_7B = {
    "model_type": "falcon", "alibi": False, "bias": False, "hidden_size": 4544,
    "layer_norm_epsilon": 1e-5, "multi_query": True, "new_decoder_architecture": False,
    "num_attention_heads": 71, "num_hidden_layers": 32, "num_kv_heads": 71, "parallel_attn": True,
    "vocab_size": 65024, "auto_map": {"AutoConfig": "configuration_falcon.FalconConfig"},
}  # fmt: skip
FALCON_40B = {
    **FALCON_7B, "hidden_size": 8192, "new_decoder_architecture": True, "num_kv_heads": 8,
    "num_attention_heads": 128, "num_hidden_layers": 60,
}  # fmt: skip
FALCON_11B = {
    **FALCON_40B, "hidden_size": 4096, "num_attention_heads": 32, "ffn_hidden_size": 16384,
    "max_position_embeddings": 8192, "num_ln_in_parallel_attn": 1, "rope_theta": 500042.0,
    "activation": "gelu",
}  # fmt: skip
PHI3_MINI_4K = {
    "model_type": "phi3", "hidden_act": "silu", "hidden_size": 3072, "intermediate_size": 8192,
    "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 32, "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
    "rope_scaling": None, "rope_theta": 10000.0, "sliding_window": 2047, "attention_bias": False,
    "tie_word_embeddings": False, "vocab_size": 32064,
    "auto_map": {"AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"},
}  # fmt: skip
PHI3_MINI_128K = {
    **PHI3_MINI_4K, "max_position_embeddings": 131072, "sliding_window": 262144,
    "rope_scaling": {"type": "su", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48},
}  # fmt: skip
PHI4_MINI = {
    **PHI3_MINI_128K, "num_attention_heads": 24, "num_key_value_heads": 8, "mlp_bias": False,
    "partial_rotary_factor": 0.75, "tie_word_embeddings": True, "full_attn_mod": 1,
    "interpolate_factor": 1, "lm_head_bias": False, "vocab_size": 200064,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48},
}  # fmt: skip


def read(config: dict[str, Any]) -> DecoderConfig:
    return read_config(
        Checkpoint(Path("x"), "safetensors", config, Conventions(), {}, TokenizerData("none"))
    )


def logits(checkpoint: Checkpoint, ops: Ops, count: int = 40, **options: Any) -> Any:
    return Session(load_model(checkpoint, ops, **options), ops).feed(prompt(0)[:count])


@pytest.mark.parametrize(
    ("stated", "heads", "head_dim", "ffn", "positions", "activation"),
    [
        (GPT2, (12, 12), 64, 3072, 1024, "gelu_tanh"),
        (STARCODER, (48, 1), 128, 24576, 8192, "gelu"),
        (STARCODER2, (24, 2), 128, 12288, 16384, "gelu_tanh"),
        (FALCON_7B, (71, 1), 64, 18176, 2048, "gelu"),
        (FALCON_40B, (128, 8), 64, 32768, 2048, "gelu"),
        (FALCON_11B, (32, 8), 128, 16384, 8192, "gelu"),
        (PHI3_MINI_4K, (32, 32), 96, 8192, 4096, "silu"),
        (PHI3_MINI_128K, (32, 32), 96, 8192, 131072, "silu"),
        (PHI4_MINI, (24, 8), 128, 8192, 131072, "silu"),
    ],
)
def test_published_configs_are_read(
    stated: dict[str, Any], heads: tuple[int, int], head_dim: int, ffn: int, positions: int,
    activation: str,
) -> None:  # fmt: skip
    config = read(stated)
    assert (config.attention.num_heads, config.attention.num_kv_heads) == heads
    assert config.attention.head_dim == head_dim
    assert config.attention.scale == head_dim**-0.5
    assert (config.intermediate_size, config.max_positions) == (ffn, positions)
    assert config.activation == activation


def test_windows_of_published_configs() -> None:
    assert read(STARCODER2).windows == (4096,) * 30
    assert read(PHI3_MINI_4K).windows == (2047,) * 32
    # No request can outgrow it, so every block is kept all the same.
    assert read(PHI3_MINI_128K).windows == ()
    assert read({**PHI3_MINI_4K, "sliding_window": None}).windows == ()


def test_rope_of_published_configs() -> None:
    assert read(GPT2).rope is None and read(STARCODER).rope is None
    eleven = read(FALCON_11B).rope
    assert eleven is not None and eleven.theta == 500042.0
    long, mini = read(PHI3_MINI_128K).rope, read(PHI4_MINI)
    assert long is not None and long.kind == "longrope"
    assert long.attention_factor == pytest.approx((1 + np.log(32) / np.log(4096)) ** 0.5)
    assert mini.rotary_dim == 96 and mini.attention.head_dim == 128


def test_silence_means_what_transformers_means() -> None:
    sizes = {"n_embd": 64, "n_head": 4, "n_layer": 1}
    gpt2, bigcode = (read({"model_type": name, **sizes}) for name in ("gpt2", "gpt_bigcode"))
    assert (gpt2.max_positions, gpt2.intermediate_size, gpt2.tied) == (1024, 256, True)
    assert (bigcode.attention.num_kv_heads, bigcode.activation) == (1, "gelu_tanh")
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1}
    falcon = read({"model_type": "falcon", **sizes})
    assert (falcon.attention.num_kv_heads, falcon.max_positions) == (1, 2048)
    assert (falcon.intermediate_size, falcon.tied, falcon.attention_bias) == (256, True, False)
    starcoder2 = read({"model_type": "starcoder2", **sizes, "intermediate_size": 96})
    assert (starcoder2.attention.num_kv_heads, starcoder2.max_positions) == (2, 4096)
    phi3 = read({"model_type": "phi3", **sizes, "intermediate_size": 96})
    assert (phi3.attention.num_kv_heads, phi3.max_positions) == (4, 4096)
    assert phi3.norm_eps == pytest.approx(1e-5, rel=1e-6)


@pytest.mark.parametrize(
    ("stated", "changes", "pattern"),
    [
        (GPT2, {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = True"),
        (GPT2, {"scale_attn_weights": False}, "scale_attn_weights = False"),
        (GPT2, {"activation_function": "relu"}, "activation_function = 'relu'"),
        (GPT2, {"n_ctx": 512}, "n_ctx = 512"),
        (GPT2, {"n_head": 7}, "n_embd = 768"),
        (GPT2, {"add_cross_attention": True}, "add_cross_attention"),
        (STARCODER, {"num_key_value_heads": 48}, "num_key_value_heads = 48"),
        (STARCODER2, {"norm_type": "rms_norm"}, "norm_type = 'rms_norm'"),
        (STARCODER2, {"mlp_type": "gated"}, "mlp_type = 'gated'"),
        (STARCODER2, {"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        (FALCON_7B, {"alibi": True}, "alibi = True"),
        (FALCON_7B, {"parallel_attn": False}, "parallel_attn = False"),
        (FALCON_7B, {"num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn = 2"),
        (FALCON_40B, {"num_ln_in_parallel_attn": 3}, "num_ln_in_parallel_attn = 3"),
        (FALCON_40B, {"num_kv_heads": 7}, "num_kv_heads = 7"),
        (FALCON_7B, {"activation": "relu"}, "activation = 'relu'"),
        (PHI3_MINI_4K, {"attention_bias": True}, "attention_bias = True"),
        (PHI4_MINI, {"full_attn_mod": 2}, "full_attn_mod = 2"),
        (PHI4_MINI, {"lm_head_bias": True}, "lm_head_bias = True"),
        (PHI4_MINI, {"partial_rotary_factor": 1.5}, "partial_rotary_factor = 1.5"),
        (PHI3_MINI_4K, {"layer_types": ["full_attention"]}, "layer_types"),
        (PHI3_MINI_128K, {"original_max_position_embeddings": None}, "original_max_position"),
    ],
)  # fmt: skip
def test_what_is_not_implemented_is_refused_by_name(
    stated: dict[str, Any], changes: dict[str, Any], pattern: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=pattern):
        read({**stated, **changes})


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
    with pytest.raises(ConfigError, match=r"max_model_len 257 .* 256"):
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
