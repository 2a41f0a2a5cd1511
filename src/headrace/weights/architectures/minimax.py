"""MiniMax-M2 and M3: experts by Mixtral's names in folders.

llama.cpp scores by what the file says. In M2 it always divides the weights of the chosen by their
sum, in M3 where the file says so, as all do. Of M3 it takes the first layers as dense ones without
an indexer, and the shared expert as wide as so many of the others.

Source: llama.cpp models/minimax-m2.cpp, minimax-m3.cpp, conversion/minimax.py.
"""

from __future__ import annotations

from typing import Any

from headrace.weights.architectures.architecture import Architecture, Key
from headrace.weights.architectures.gguf_keys import GGUFKeys
from headrace.weights.architectures.glm import DENSE_LAYERS, read_count
from headrace.weights.architectures.shared import (
    ATTENTION,
    GATED_MLP,
    GATING,
    HEAD_NORMS,
    LOCAL_EXPERT_COUNTS,
    NORMED,
    PRE_NORMS,
    SIGMOID,
    SILU,
    TOP,
    with_defaults,
)
from headrace.weights.checkpoint import Conventions
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.layer_kinds import read_sparse_mlps
from headrace.weights.model_config.rope_config import FULL
from headrace.weights.model_config.sparse_blocks import SPARSE, SparseBlocks

# Of a dense MLP, which no layer has; the converter writes an expert's width here as well.
_WIDTH = "feed_forward_length"


def _read(keys: GGUFKeys, config: dict[str, Any]) -> None:
    width = keys.size(_WIDTH)
    if width not in (None, config["intermediate_size"]):
        raise keys.error(_WIDTH, width, "the width of an expert is required")


def _write(config: ConfigReader, entries: dict[str, Any]) -> None:
    entries[_WIDTH] = config.size("intermediate_size", 1536)
    entries[GATING] = SIGMOID


_EXPERTS = {
    "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
    "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
    "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
}

MINIMAX_M2 = Architecture(
    name="minimax-m2",
    model_type="minimax_m2",
    hf_class="MiniMaxM2ForCausalLM",
    silent_head_dim=128,
    block={**PRE_NORMS, **ATTENTION, **HEAD_NORMS, "ffn_gate_inp": "block_sparse_moe.gate"},
    top=TOP,
    keys=(
        Key("context_length", "max_position_embeddings", in_config=196608),
        Key("embedding_length", "hidden_size", in_config=3072),
        Key("block_count", "num_hidden_layers", in_config=62),
        Key("expert_feed_forward_length", "intermediate_size", in_config=1536),
        Key("attention.head_count", "num_attention_heads", in_config=48),
        Key("attention.head_count_kv", "num_key_value_heads", in_config=8),
        Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", "positive", in_config=1e-6),
        *with_defaults(LOCAL_EXPERT_COUNTS, 256, 8),
    ),
    rope_theta=5e6,
    partial=1.0,
    rotary_dim_key=True,
    accepted={
        **SILU,
        "attn_type_list": (1,),
        "mtp_transformer_layers": (),
        "num_mtp_modules": (),
        "qk_norm_type": ("per_layer",),
        "router_jitter_noise": (),
        "scoring_func": ("sigmoid",),
        "shared_intermediate_size": (0,),
        "use_mtp": (),
        "use_qk_norm": (True,),
        "use_routing_bias": (True,),
    },
    neutral={NORMED: True, GATING: SIGMOID},
    reads=_read,
    writes=_write,
    experts=_EXPERTS,
    folder_experts={
        "mlp.experts.gate_up_proj": (
            "block_sparse_moe.experts.{}.w1.weight",
            "block_sparse_moe.experts.{}.w3.weight",
        ),
        "mlp.experts.down_proj": ("block_sparse_moe.experts.{}.w2.weight",),
    },
    vectors={"exp_probs_b.bias": "block_sparse_moe.e_score_correction_bias"},
    routers=("block_sparse_moe.gate",),
)


_SHARED = "expert_shared_count"
_INDEXER = "attention.indexer."
_SIZES = {
    f"{_INDEXER}head_count": "index_n_heads",
    f"{_INDEXER}key_length": "index_head_dim",
    f"{_INDEXER}block_size": "index_block_size",
    f"{_INDEXER}top_k": "index_topk_blocks",
    f"{_INDEXER}local_blocks": "index_local_blocks",
}
"""Keys of an indexer, and those that transformers has for them."""


def _read_m3(keys: GGUFKeys, config: dict[str, Any]) -> None:
    layers = config["num_hidden_layers"]
    dense = read_count(keys, DENSE_LAYERS, layers + 1)
    config["layer_types"] = [FULL] * dense + [SPARSE] * (layers - dense)
    config["mlp_layer_types"] = ["dense"] * dense + ["sparse"] * (layers - dense)
    config |= {ours: keys.required_size(name) for name, ours in _SIZES.items()}
    config["shared_intermediate_size"] = config["intermediate_size"] * keys.required_size(_SHARED)
    if (normed := keys.take(NORMED)) is not True:
        raise keys.error(NORMED, normed, "true is required")


def _write_m3(config: ConfigReader, entries: dict[str, Any]) -> None:
    layers = entries["block_count"]
    turning = entries["rope.dimension_count"]
    config.expect("rotary_dim", int, (turning,), turning)
    blocks = SparseBlocks.read(config, layers)
    sizes = (blocks.heads, blocks.head_dim, blocks.block_size, blocks.chosen, blocks.local)
    entries |= dict(zip(_SIZES, sizes, strict=True))
    sparse = read_sparse_mlps(config, layers, (True,) * layers)
    dense = (*sparse, True).index(True)
    leading = tuple(index >= dense for index in range(layers))
    if sparse != leading:
        config.refuse("mlp_layer_types", config.raw("mlp_layer_types"), "dense layers first")
    if blocks.layers != leading:
        kinds = config.raw("layer_types")
        config.refuse("layer_types", kinds, f"{SPARSE!r} in the layers with experts")
    entries[DENSE_LAYERS] = dense
    width = config.size("intermediate_size", 3072)
    shared = config.size("shared_intermediate_size", 3072)
    if shared % width:
        config.refuse("shared_intermediate_size", shared, f"multiples of {width}, an expert's")
    entries[_SHARED] = shared // width
    entries[GATING], entries[NORMED] = SIGMOID, True


MINIMAX_M3 = Architecture(
    name="minimax-m3",
    model_type="minimax_m3",
    hf_class="MiniMaxM3ForCausalLM",
    block={
        **PRE_NORMS,
        **ATTENTION,
        **HEAD_NORMS,
        **GATED_MLP,
        "ffn_gate_inp": "block_sparse_moe.gate",
        "ffn_gate_shexp": "block_sparse_moe.shared_experts.gate_proj",
        "ffn_up_shexp": "block_sparse_moe.shared_experts.up_proj",
        "ffn_down_shexp": "block_sparse_moe.shared_experts.down_proj",
        "indexer.q_proj": "self_attn.index_q_proj",
        "indexer.k_proj": "self_attn.index_k_proj",
        "indexer.q_norm": "self_attn.index_q_norm",
        "indexer.k_norm": "self_attn.index_k_norm",
    },
    top=TOP,
    keys=(
        Key("context_length", "max_position_embeddings", in_config=524288),
        Key("embedding_length", "hidden_size", in_config=6144),
        Key("block_count", "num_hidden_layers", in_config=60),
        Key(_WIDTH, "dense_intermediate_size", in_config=12288),
        Key("expert_feed_forward_length", "intermediate_size", in_config=3072),
        Key("attention.head_count", "num_attention_heads", in_config=64),
        Key("attention.head_count_kv", "num_key_value_heads", in_config=4),
        Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", "positive", in_config=1e-6),
        Key("expert_weights_scale", "routed_scaling_factor", "positive", 1.0, 2.0),
        *with_defaults(LOCAL_EXPERT_COUNTS, 128, 4),
    ),
    rope_theta=5e6,
    partial=1.0,
    silent_head_dim=128,
    accepted={
        "hidden_act": ("swigluoai", "silu"),
        "attention_output_gate": (False,),
        "first_k_dense_replace": (),
        "moe_intermediate_size": (),
        "n_shared_experts": (1,),
        "num_mtp_modules": (),
        "num_nextn_predict_layers": (),
        "qk_norm_type": ("per_head",),
        "router_jitter_noise": (),
        "scoring_func": ("sigmoid",),
        "swiglu_alpha": (1.702,),
        "swiglu_limit": (7.0,),
        "use_gemma_norm": (True,),
        "use_qk_norm": (True,),
        "use_routing_bias": (True,),
    },
    neutral={GATING: SIGMOID},
    reads=_read_m3,
    writes=_write_m3,
    hf=Conventions(norm_offset=1.0),
    experts=_EXPERTS,
    vectors={"exp_probs_b.bias": "block_sparse_moe.e_score_correction_bias"},
    routers=("block_sparse_moe.gate",),
)
