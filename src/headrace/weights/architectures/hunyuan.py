"""Hunyuan, dense sizes: Llama's names, and norms of heads under names of its own.

GGUF has the base of a rope as alpha has grown it, and no alpha.

Source: llama.cpp models/hunyuan-dense.cpp, conversion/hunyuan.py.
"""

from __future__ import annotations

from headrace.weights.architectures.architecture import Architecture, Key
from headrace.weights.architectures.shared import ATTENTION_BIAS, BLOCK, SILU, SIZES, TOP

HUNYUAN_DENSE = Architecture(
    name="hunyuan-dense",
    model_type="hunyuan_v1_dense",
    hf_class="HunYuanDenseV1ForCausalLM",
    block={
        **BLOCK,
        "attn_q_norm": "self_attn.query_layernorm",
        "attn_k_norm": "self_attn.key_layernorm",
    },
    top=TOP,
    keys=(
        *SIZES,
        Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", "positive", in_config=1e-5),
    ),
    rope_alpha=True,
    accepted={
        **SILU,
        "use_qk_norm": (True,),
        "use_cla": (False,),
        "cla_share_factor": (),
        "attention_head_dim": (),
        "eod_token_id": (),
    },
    bias_keys={"attention_bias": ATTENTION_BIAS},
)
