"""Hunyuan, dense and with experts: Llama's names, and norms of heads under names of its own.

GGUF has the base of a rope as alpha has grown it, and no alpha. Experts and the shared one are as
wide as `feed_forward_length` says, and the other keys for their widths repeat it.

Source: llama.cpp models/hunyuan-dense.cpp, hunyuan-moe.cpp, conversion/hunyuan.py.
"""

from __future__ import annotations

from typing import Any

from headrace.weights.architectures.architecture import Architecture, Key
from headrace.weights.architectures.gguf_keys import GGUFKeys
from headrace.weights.architectures.shared import (
    ATTENTION,
    ATTENTION_BIAS,
    BLOCK,
    EXPERTS,
    FOLDER_EXPERTS,
    NORMED,
    PRE_NORMS,
    SILU,
    SIZES,
    TOP,
)
from headrace.weights.model_config.config_reader import ConfigReader

_NORMS = {
    "attn_q_norm": "self_attn.query_layernorm",
    "attn_k_norm": "self_attn.key_layernorm",
}
_KEYS = (
    *SIZES,
    Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", "positive", in_config=1e-5),
)
_ACCEPTED: dict[str, tuple[object, ...]] = {
    **SILU,
    "use_qk_norm": (True,),
    "use_cla": (False,),
    "cla_share_factor": (),
    "attention_head_dim": (),
    "eod_token_id": (),
}

HUNYUAN_DENSE = Architecture(
    name="hunyuan-dense",
    model_type="hunyuan_v1_dense",
    hf_class="HunYuanDenseV1ForCausalLM",
    block={**BLOCK, **_NORMS},
    top=TOP,
    keys=_KEYS,
    rope_alpha=True,
    accepted=_ACCEPTED,
    bias_keys={"attention_bias": ATTENTION_BIAS},
)

_WIDTHS = ("expert_feed_forward_length", "expert_shared_feed_forward_length")
_COUNTS = {"expert_count": "num_experts", "expert_used_count": "moe_topk"}
_SHARED = "expert_shared_count"


def _read_moe(keys: GGUFKeys, config: dict[str, Any]) -> None:
    width = config["intermediate_size"]
    for key in _WIDTHS:
        if (stated := keys.size(key)) not in (None, width):
            raise keys.error(key, stated, f"feed_forward_length {width} is required")
    if (shared := keys.size(_SHARED)) not in (None, 1):
        raise keys.error(_SHARED, shared, "1 is required")
    for key, name in _COUNTS.items():
        if (count := keys.size(key)) is None:
            raise keys.error(key, count, "a positive integer is required")
        config[name] = count


def _write_moe(config: ConfigReader, entries: dict[str, Any]) -> None:
    layers, width = entries["block_count"], entries["feed_forward_length"]
    if (stated := config.uniform_size("moe_intermediate_size", layers, width)) != width:
        config.refuse("moe_intermediate_size", stated, f"intermediate_size {width}")
    entries |= dict.fromkeys(_WIDTHS, width)
    entries[_SHARED] = 1
    for key, name in _COUNTS.items():
        entries[key] = config.uniform_size(name, layers, 1)


HUNYUAN_MOE = Architecture(
    name="hunyuan-moe",
    model_type="hunyuan_v1_moe",
    hf_class="HunYuanMoEV1ForCausalLM",
    block={
        **PRE_NORMS,
        **ATTENTION,
        **_NORMS,
        "ffn_gate_inp": "mlp.gate.wg",
        "ffn_gate_shexp": "mlp.shared_mlp.gate_proj",
        "ffn_up_shexp": "mlp.shared_mlp.up_proj",
        "ffn_down_shexp": "mlp.shared_mlp.down_proj",
    },
    top=TOP,
    keys=_KEYS,
    rope_alpha=True,
    accepted={
        **_ACCEPTED,
        "add_classification_head": (False,),
        "class_num": (),
        "dense_list": (),
        "group_limited_greedy": (False,),
        "mlp_bias": (False,),
        "moe_drop_tokens": (False,),
        "moe_layer_num_skipped": (0,),
        "moe_random_routing_dropped_token": (),
        "n_group": (),
        "norm_topk_prob": (True,),
        "norm_type": ("rms",),
        "num_shared_expert": (1,),
        "org_vocab_size": (),
        "pool_type": (),
        "position_embedding_xdrope": (False,),
        "routed_scaling_factor": (False, 1),
        "skip_cls_token": (),
        "topk_group": (),
        "use_mixed_mlp_moe": (True,),
        "use_mla": (False,),
        "use_rotary_pos_emb": (True,),
    },
    neutral={NORMED: True},
    reads=_read_moe,
    writes=_write_moe,
    bias_keys={"attention_bias": ATTENTION_BIAS},
    experts=EXPERTS,
    folder_experts=FOLDER_EXPERTS,
    routers=("mlp.gate.wg",),
)
