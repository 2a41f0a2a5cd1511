"""Configs as published, of the families whose files are least alike: read, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import UnsupportedModelError
from headrace.models import DecoderConfig, read_config
from headrace.weights.architectures import ARCHITECTURES
from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from headrace.weights.gguf.metadata import metadata_of_config
from tests.tiny import tiny_config

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


@pytest.mark.parametrize(
    ("stated", "changes", "pattern"),
    [
        (GPT2, {"scale_attn_by_inverse_layer_idx": 1}, "scale_attn_by_inverse_layer_idx is 1"),
        (GPT2, {"scale_attn_weights": "no"}, "scale_attn_weights is 'no'"),
        (GPT2, {"activation_function": "tanh"}, "activation_function = 'tanh'"),
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


# What published configs say besides, and what a second statement must not contradict.
BESIDES: list[tuple[str, str, Any, Any]] = [
    ("gemma2", "sliding_window_size", 64, 32),  # gemma-2-9b, gemma-2-27b
    ("falcon", "apply_residual_connection_post_layernorm", False, True),  # falcon-7b, falcon-40b
    ("falcon", "ff_factor", 4, 8),  # falcon-11B
    ("llama", "activation", "swiglu", "geglu"),  # Falcon3
    ("cohere2", "use_parallel_embedding", False, ...),  # tiny-aya
    ("gpt2", "output_past", True, ...),  # gpt2-xl
    ("gpt2", "_num_labels", 1, ...),  # distilgpt2
]


@pytest.mark.parametrize(("family", "key", "stated", "other"), BESIDES)
def test_what_published_configs_say_besides(family: str, key: str, stated: Any, other: Any) -> None:
    config = tiny_config(family)
    assert read({**config, key: stated}) == read(config)
    written = metadata_of_config({**config, key: stated}, ARCHITECTURES[family])
    assert written == metadata_of_config(config, ARCHITECTURES[family])
    if other is not ...:
        with pytest.raises(UnsupportedModelError, match=f"{key} = "):
            read({**config, key: other})


def test_a_quantised_folder_is_refused_by_its_method_or_else_by_all_it_says() -> None:
    for stated, words in (
        ({"quant_method": "awq", "bits": 3}, "quantization_config = 'awq'"),
        ({"producer": {"name": "modelopt"}}, "quantization_config = {'producer'"),
    ):
        with pytest.raises(UnsupportedModelError, match=words):
            read({**tiny_config(), "quantization_config": stated})


def test_scales_and_activations_of_gpt2s_sisters() -> None:
    plain = read(GPT2)
    assert (plain.attention.scale, plain.attention_scales) == (64**-0.5, ())
    unscaled = read({**GPT2, "scale_attn_weights": False, "activation_function": "relu"})
    assert (unscaled.attention.scale, unscaled.activation) == (1.0, "relu")
    by_layer = read({**GPT2, "scale_attn_by_inverse_layer_idx": True})
    assert by_layer.attention_scales == tuple(64**-0.5 / number for number in range(1, 13))
    assert read({**STARCODER, "scale_attn_weights": False}).attention.scale == 1.0


@pytest.mark.parametrize("stated", [GPT2, STARCODER, PHI3_MINI_4K, FALCON_40B])
def test_code_beside_the_weights_stops_no_load(stated: dict[str, Any]) -> None:
    """It is never run, and of a type that is known it says nothing that the config does not."""
    code = {"AutoModelForCausalLM": "org/other--modeling_x.XForCausalLM"}
    assert read({**stated, "auto_map": code}) == read(stated)
    with pytest.raises(
        UnsupportedModelError, match=r"'x' is not implemented \(auto_map names code"
    ):
        read({**stated, "auto_map": code, "model_type": "x"})
