"""GLM-4-9B and GLM-4-0414: rows of Q and K interleaved in both containers, gate and up as one.

Files of GLM-4-9B that were made of its first form (ChatGLM) have Q, K and V as one matrix too.
GLM-4.5 has experts, and neither: its rows lie in halves, and gate and up are two matrices.

Source: llama.cpp models/glm4.cpp, glm4-moe.cpp and chatglm.cpp, conversion/glm.py and chatglm.py.
"""

from __future__ import annotations

from typing import Any

from headrace.weights.architectures.architecture import Architecture, Key
from headrace.weights.architectures.gguf_keys import GGUFKeys, is_whole
from headrace.weights.architectures.shared import (
    ATTENTION,
    ATTENTION_BIAS,
    EXPERTS,
    FOLDER_EXPERTS,
    GATED_MLP,
    GATING,
    HEAD_NORMS,
    RMS_EPS,
    SIGMOID,
    SILU,
    TOP,
)
from headrace.weights.checkpoint import Conventions
from headrace.weights.model_config.config_reader import ConfigReader

_MLP = {"ffn_up": "mlp.gate_up_proj", "ffn_down": "mlp.down_proj"}
_KEYS = (
    Key("context_length", "max_position_embeddings"),
    Key("embedding_length", "hidden_size"),
    Key("block_count", "num_hidden_layers"),
    Key("feed_forward_length", "intermediate_size"),
    Key("attention.head_count", "num_attention_heads"),
    Key("attention.head_count_kv", "num_key_value_heads", in_config=2),
    RMS_EPS,
)
_INTERLEAVED = Conventions(rope_layout="interleaved")
_BIAS_KEYS = {"attention_bias": tuple(name for name in ATTENTION_BIAS if "o_proj" not in name)}


def _write_glm(config: ConfigReader, entries: dict[str, Any]) -> None:
    """llama.cpp takes heads of this architecture to be as wide as hidden / heads."""
    width = config.size("hidden_size") // config.size("num_attention_heads")
    config.expect("head_dim", int, (width,), 128)


GLM = Architecture(
    name="chatglm",
    model_type="glm",
    hf_class="GlmForCausalLM",
    silent_head_dim=128,
    block={
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attn_qkv": "self_attn.qkv_proj",
        **ATTENTION,
        **_MLP,
    },
    top=TOP,
    keys=_KEYS,
    partial=0.5,
    accepted=SILU,
    writes=_write_glm,
    gguf_only=("self_attn.qkv_proj",),
    gguf=_INTERLEAVED,
    hf=_INTERLEAVED,
    bias_keys=_BIAS_KEYS,
)

GLM4 = Architecture(
    name="glm4",
    model_type="glm4",
    hf_class="Glm4ForCausalLM",
    silent_head_dim=128,
    block={
        "attn_norm": "input_layernorm",
        "post_attention_norm": "post_self_attn_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "post_ffw_norm": "post_mlp_layernorm",
        **ATTENTION,
        **_MLP,
    },
    top=TOP,
    keys=_KEYS,
    partial=0.5,
    accepted=SILU,
    gguf=_INTERLEAVED,
    hf=_INTERLEAVED,
    bias_keys=_BIAS_KEYS,
)


# A layer that predicts further tokens stands behind the others, and is counted with them.
DRAFT_LAYERS = "nextn_predict_layers"
DRAFT = {
    "nextn.eh_proj": "eh_proj",
    "nextn.embed_tokens": "embed_tokens",
    "nextn.enorm": "enorm",
    "nextn.hnorm": "hnorm",
    "nextn.shared_head_head": "shared_head.head",
    "nextn.shared_head_norm": "shared_head.norm",
}
DENSE_LAYERS = "leading_dense_block_count"
_NORMED = "expert_weights_norm"
# Experts in one group, of which the best one is taken: no choice.
_NO_GROUPS = {"expert_group_count": 1, "expert_group_used_count": 1}


def _read_experts(keys: GGUFKeys, config: dict[str, Any]) -> None:
    """Where a file says nothing, llama.cpp has no dense layer and leaves weights as they are."""
    config["first_k_dense_replace"] = read_count(keys, DENSE_LAYERS, 1 << 31)
    config["num_nextn_predict_layers"] = read_count(keys, DRAFT_LAYERS, config["num_hidden_layers"])
    config["num_hidden_layers"] -= config["num_nextn_predict_layers"]
    normed = keys.take(_NORMED)
    if normed is not None and not isinstance(normed, bool):
        raise keys.error(_NORMED, normed, "true or false is required")
    config["norm_topk_prob"] = bool(normed)


def read_count(keys: GGUFKeys, key: str, limit: int) -> int:
    """A number from 0 to below `limit`; 0 where the file says nothing."""
    value = keys.take(key)
    if value is None:
        return 0
    if not is_whole(value) or not 0 <= value < limit:
        raise keys.error(key, value, f"a whole number from 0 to {limit - 1} is required")
    return int(value)


def _write_experts(config: ConfigReader, entries: dict[str, Any]) -> None:
    dense = config.get("first_k_dense_replace", int, 1)
    if not 0 <= dense <= entries["block_count"]:
        config.refuse("first_k_dense_replace", dense, "0 to num_hidden_layers")
    entries[DENSE_LAYERS] = dense
    drafts = config.get("num_nextn_predict_layers", int, 0)
    if not 0 <= drafts < 1 << 16:
        config.refuse("num_nextn_predict_layers", drafts, "0 to 65535")
    entries["block_count"] += drafts
    if drafts:
        entries[DRAFT_LAYERS] = drafts
    entries[_NORMED] = config.get("norm_topk_prob", bool, True)
    entries[GATING] = SIGMOID
    entries |= _NO_GROUPS


GLM4_MOE = Architecture(
    name="glm4moe",
    model_type="glm4_moe",
    hf_class="Glm4MoeForCausalLM",
    block={
        "attn_norm": "input_layernorm",
        "post_attention_norm": "post_attention_layernorm",
        **ATTENTION,
        **HEAD_NORMS,
        **GATED_MLP,
        "ffn_gate_inp": "mlp.gate",
        "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
        "ffn_up_shexp": "mlp.shared_experts.up_proj",
        "ffn_down_shexp": "mlp.shared_experts.down_proj",
        **DRAFT,
    },
    top=TOP,
    keys=(
        Key("context_length", "max_position_embeddings"),
        Key("embedding_length", "hidden_size"),
        Key("block_count", "num_hidden_layers"),
        Key("feed_forward_length", "intermediate_size"),
        Key("attention.head_count", "num_attention_heads"),
        Key("attention.head_count_kv", "num_key_value_heads", in_config=8),
        Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", "positive", in_config=1e-5),
        Key("expert_count", "n_routed_experts", in_config=128),
        Key("expert_used_count", "num_experts_per_tok", in_config=8),
        Key("expert_shared_count", "n_shared_experts", in_config=1),
        Key("expert_feed_forward_length", "moe_intermediate_size", in_config=1408),
        Key("expert_weights_scale", "routed_scaling_factor", "positive", 1.0, 1.0, off=0.0),
    ),
    partial=0.5,
    implied={"n_group": 1, "topk_group": 1},
    accepted=SILU,
    neutral={**_NO_GROUPS, GATING: SIGMOID},
    reads=_read_experts,
    writes=_write_experts,
    bias_keys=_BIAS_KEYS,
    norm_keys={"use_qk_norm": ("self_attn.q_norm", "self_attn.k_norm")},
    experts=EXPERTS,
    folder_experts=FOLDER_EXPERTS,
    vectors={"exp_probs_b.bias": "mlp.gate.e_score_correction_bias"},
    routers=("mlp.gate",),
)
