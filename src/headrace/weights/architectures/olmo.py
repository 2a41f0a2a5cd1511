"""OLMo 2 and OLMoE. A file of OLMo 2 that states a window is OLMo 3's, which the model refuses by
that key. llama.cpp never divides the weights of OLMoE's experts by their sum.

Source: llama.cpp models/olmo2.cpp, olmoe.cpp, conversion/olmo.py.
"""

from __future__ import annotations

from headrace.weights.architectures.architecture import Architecture, Key
from headrace.weights.architectures.shared import (
    ATTENTION,
    ATTENTION_BIAS,
    EXPERT_COUNTS,
    EXPERTS,
    FOLDER_EXPERTS,
    GATED_MLP,
    HEAD_NORMS,
    KEYS,
    NORMED,
    PRE_NORMS,
    SILU,
    SIZES,
    TOP,
    with_defaults,
)

OLMO2 = Architecture(
    name="olmo2",
    model_type="olmo2",
    hf_class="Olmo2ForCausalLM",
    block={
        "post_attention_norm": "post_attention_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
        **ATTENTION,
        **HEAD_NORMS,
        **GATED_MLP,
    },
    top=TOP,
    keys=KEYS,
    head_dim=False,
    accepted=SILU,
    bias_keys={"attention_bias": ATTENTION_BIAS},
)

OLMOE = Architecture(
    name="olmoe",
    model_type="olmoe",
    hf_class="OlmoeForCausalLM",
    block={**PRE_NORMS, **ATTENTION, **HEAD_NORMS, "ffn_gate_inp": "mlp.gate"},
    top=TOP,
    keys=(
        *SIZES,
        Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", "positive", in_config=1e-5),
        *with_defaults(EXPERT_COUNTS, 64, 8),
    ),
    head_dim=False,
    implied={"norm_topk_prob": False},
    accepted=SILU,
    neutral={NORMED: False},
    bias_keys={"attention_bias": ATTENTION_BIAS},
    experts=EXPERTS,
    folder_experts=FOLDER_EXPERTS,
    routers=("mlp.gate",),
)
