"""OLMo 2, OLMo 3 and OLMoE. A file of OLMo 2 that states a window is OLMo 3's.

llama.cpp never divides the weights of OLMoE's experts by their sum.

Source: llama.cpp models/olmo2.cpp, olmoe.cpp, conversion/olmo.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.weights.architectures.architecture import Architecture, Key
from headrace.weights.architectures.gguf_keys import GGUFKeys
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
from headrace.weights.architectures.windows import read_layer_types, write_layer_types
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.rope_config import FULL, WINDOWED

_WINDOW = "attention.sliding_window"
_LOCAL_THETA = "rope.freq_base_swa"
_EPS = Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", "positive", in_config=1e-5)

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


def _has_window(keys: GGUFKeys) -> bool:
    return _WINDOW in keys and not keys.says(_WINDOW, 0)


def _read_olmo3(keys: GGUFKeys, config: dict[str, Any]) -> None:
    """A rope for each kind of layer, which config.json has no older words for.

    llama.cpp scales that of layers that see everything alone; the base is one where only one is.
    """
    read_layer_types(keys, config)
    theta, scaling = config.pop("rope_theta"), config.pop("rope_scaling", {"rope_type": "default"})
    local = config.pop("rope_local_base_freq") if keys.peek(_LOCAL_THETA) is not None else theta
    config.pop("rope_local_base_freq", None)
    config["rope_parameters"] = {
        FULL: {**scaling, "rope_theta": theta},
        WINDOWED: {"rope_type": "default", "rope_theta": local},
    }


def _write_olmo3(config: ConfigReader, entries: dict[str, Any]) -> None:
    write_layer_types(config, entries, 4)


OLMO3 = replace(
    OLMO2,
    model_type="olmo3",
    hf_class="Olmo3ForCausalLM",
    keys=(*SIZES, _EPS, Key(_WINDOW, "sliding_window", in_config=4096)),
    rope_theta=5e5,
    local_theta=5e5,
    is_this=_has_window,
    reads=_read_olmo3,
    writes=_write_olmo3,
)

OLMOE = Architecture(
    name="olmoe",
    model_type="olmoe",
    hf_class="OlmoeForCausalLM",
    block={**PRE_NORMS, **ATTENTION, **HEAD_NORMS, "ffn_gate_inp": "mlp.gate"},
    top=TOP,
    keys=(
        *SIZES,
        _EPS,
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
