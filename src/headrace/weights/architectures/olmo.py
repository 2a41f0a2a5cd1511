"""OLMo 2. A file that states a window is OLMo 3's, which the model refuses by that key.

Source: llama.cpp models/olmo2.cpp, conversion/olmo.py.
"""

from __future__ import annotations

from headrace.weights.architectures.architecture import Architecture
from headrace.weights.architectures.shared import (
    ATTENTION,
    ATTENTION_BIAS,
    GATED_MLP,
    HEAD_NORMS,
    KEYS,
    SILU,
    TOP,
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
