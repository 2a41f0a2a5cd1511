"""gpt-oss: experts with biases, sinks of the heads, windows in each other layer.

Folders hold the experts of a layer in stacks that are turned, or as MXFP4; GGUF files as others do.
llama.cpp has whole dimensions for the bounds of yarn, and no key for it: the models were trained
without, their configs all say so ("truncate": false), and so files are read.

Source: gguf-py constants.py (names), llama.cpp llama-model.cpp (defaults), its converter for
GptOssForCausalLM (what is written).
"""

from __future__ import annotations

from typing import Any

from headrace.weights.architectures.architecture import Architecture, Key
from headrace.weights.architectures.gguf_keys import GGUFKeys
from headrace.weights.architectures.shared import (
    ATTENTION,
    ATTENTION_BIAS,
    EXPERTS,
    LOCAL_EXPERT_COUNTS,
    SILU,
    TOP,
    with_defaults,
)
from headrace.weights.architectures.windows import read_layer_types, write_layer_types
from headrace.weights.model_config.config_reader import ConfigReader

# Of a dense MLP, which no layer has; the converter writes an expert's width here as well.
_WIDTH = "feed_forward_length"


def _read(keys: GGUFKeys, config: dict[str, Any]) -> None:
    read_layer_types(keys, config)
    width = keys.size(_WIDTH)
    if width not in (None, config["intermediate_size"]):
        raise keys.error(_WIDTH, width, "the width of an expert is required")


def _write(config: ConfigReader, entries: dict[str, Any]) -> None:
    write_layer_types(config, entries, full_every=2)
    entries[_WIDTH] = config.size("intermediate_size")
    # What published files state twice.
    chosen = entries["expert_used_count"]
    config.expect("experts_per_token", int, (chosen,), chosen)
    if (original := entries.get("rope.scaling.original_context_length")) is not None:
        config.expect("initial_context_length", int, (original,), original)
    if (stored := config.section("quantization_config")) is not None:
        # What is written are the tensors, whatever held them.
        stored.expect("quant_method", str, ("mxfp4",), "")
        stored.unused("modules_to_not_convert")


GPT_OSS = Architecture(
    name="gpt-oss",
    model_type="gpt_oss",
    hf_class="GptOssForCausalLM",
    silent_head_dim=64,
    block={
        "attn_norm": "input_layernorm",
        "post_attention_norm": "post_attention_layernorm",
        **ATTENTION,
        "ffn_gate_inp": "mlp.router",
    },
    top=TOP,
    keys=(
        Key("context_length", "max_position_embeddings", in_config=131072),
        Key("embedding_length", "hidden_size"),
        Key("block_count", "num_hidden_layers"),
        Key("expert_feed_forward_length", "intermediate_size"),
        Key("attention.head_count", "num_attention_heads"),
        Key("attention.head_count_kv", "num_key_value_heads", in_config=8),
        Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", "positive", in_config=1e-5),
        Key("attention.sliding_window", "sliding_window", in_config=128),
        *with_defaults(LOCAL_EXPERT_COUNTS, 128, 4),
    ),
    rope_theta=150000.0,
    yarn_truncates=False,
    accepted={
        **SILU,
        "swiglu_limit": (7.0,),
        "swiglu_alpha": (1.702,),
    },
    reads=_read,
    writes=_write,
    bias_keys={"attention_bias": ATTENTION_BIAS},
    experts=EXPERTS,
    folder_experts={
        "mlp.experts.gate_up_proj": (
            "mlp.experts.{}.gate_proj.weight",
            "mlp.experts.{}.up_proj.weight",
        ),
        "mlp.experts.gate_up_proj_bias": (
            "mlp.experts.{}.gate_proj.bias",
            "mlp.experts.{}.up_proj.bias",
        ),
        "mlp.experts.down_proj": ("mlp.experts.{}.down_proj.weight",),
        "mlp.experts.down_proj_bias": ("mlp.experts.{}.down_proj.bias",),
    },
    stacked_in_folders=True,
    turned_stacks="in_turn",
    vectors={"attn_sinks.weight": "self_attn.sinks"},
    routers=("mlp.router",),
)
