"""Llama and the families that GGUF files store as it: pairs of rotated dimensions side by side.

Mistral's files go by Llama's name, and are Llamas where no window is stated; llama.cpp knows no
window for them and sees everything. Newer ones go by "mistral3", and are Ministral 3 where they
scale queries by position. Files of Mixtral are those with experts.

Source: llama.cpp models/llama.cpp, mistral3.cpp, smollm3.cpp, granite.cpp; conversion/llama.py,
mistral3.py, granite.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.weights.architectures.architecture import LEFT_OUT, Architecture, Key
from headrace.weights.architectures.gguf_keys import GGUFKeys
from headrace.weights.architectures.shared import (
    ATTENTION,
    ATTENTION_BIAS,
    BIAS_KEYS,
    BLOCK,
    GATED_MLP,
    KEYS,
    LOCAL_EXPERT_COUNTS,
    MLP_BIAS,
    NO_WINDOW,
    NORMED,
    PRE_NORMS,
    SILU,
    SIZES,
    TOP,
    WINDOW,
    keys_with_kv_heads,
    with_defaults,
)
from headrace.weights.checkpoint import Conventions
from headrace.weights.model_config.config_reader import ConfigReader

_INTERLEAVED = Conventions(rope_layout="interleaved")
_WINDOW = "attention.sliding_window"
_EPS = Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", "positive", in_config=1e-5)


def _window_is_off(config: ConfigReader, entries: dict[str, Any]) -> None:
    """A config may state a window and, beside it, that it is not used; GGUF has no word for it."""
    del entries
    if config.raw("use_sliding_window") is False:
        config.unused("sliding_window")


LLAMA = Architecture(
    name="llama",
    model_type="llama",
    hf_class="LlamaForCausalLM",
    block=BLOCK,
    top=TOP,
    keys=KEYS,
    accepted={**SILU, **NO_WINDOW, "activation": ("swiglu",)},
    writes=_window_is_off,
    gguf=_INTERLEAVED,
    bias_keys=BIAS_KEYS,
)


def _has_experts(keys: GGUFKeys) -> bool:
    return "expert_count" in keys and not keys.says("expert_count", 0)


MIXTRAL = Architecture(
    name="llama",
    model_type="mixtral",
    hf_class="MixtralForCausalLM",
    block={**PRE_NORMS, **ATTENTION, "ffn_gate_inp": "block_sparse_moe.gate"},
    top=TOP,
    keys=(*keys_with_kv_heads(8), *with_defaults(LOCAL_EXPERT_COUNTS, 8, 2), WINDOW),
    rope_theta=1e6,
    accepted={**SILU, "router_jitter_noise": ()},
    neutral={NORMED: True},
    is_this=_has_experts,
    gguf=_INTERLEAVED,
    experts={
        "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
        "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
        "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
    },
    folder_experts={
        "mlp.experts.gate_up_proj": (
            "block_sparse_moe.experts.{}.w1.weight",
            "block_sparse_moe.experts.{}.w3.weight",
        ),
        "mlp.experts.down_proj": ("block_sparse_moe.experts.{}.w2.weight",),
    },
    routers=("block_sparse_moe.gate",),
)


def _has_window(keys: GGUFKeys) -> bool:
    return _WINDOW in keys and not keys.says(_WINDOW, 0)


MISTRAL = Architecture(
    name="llama",
    model_type="mistral",
    hf_class="MistralForCausalLM",
    block=BLOCK,
    top=TOP,
    keys=(
        *keys_with_kv_heads(8),
        Key(_WINDOW, "sliding_window", in_gguf=LEFT_OUT, in_config=4096, off=0),
    ),
    accepted={
        **SILU,
        "layer_types": ("sliding_attention", "full_attention"),
        "attention_bias": (False,),
        "mlp_bias": (False,),
    },
    is_this=_has_window,
    gguf=_INTERLEAVED,
)


def _no_window(keys: GGUFKeys, config: dict[str, Any]) -> None:
    """config.json means 4096 where it says nothing."""
    config.setdefault("sliding_window", None)


_BETA = "attention.temperature_scale"
_LOG_MULTIPLIER = "rope.scaling.yarn_log_multiplier"


def _scales_queries(keys: GGUFKeys) -> bool:
    return _BETA in keys and not keys.says(_BETA, 0.0)


def _read_ministral3(keys: GGUFKeys, config: dict[str, Any]) -> None:
    """llama.cpp takes `mscale` as 1 beside its other half, and the length of yarn for both."""
    scaling = config.setdefault("rope_scaling", {"rope_type": "default"})
    scaling["llama_4_scaling_beta"] = keys.positive(_BETA)
    if keys.says(_LOG_MULTIPLIER, 0.0):
        keys.take(_LOG_MULTIPLIER)
    elif (all_dims := keys.positive(_LOG_MULTIPLIER)) is not None:
        scaling |= {"mscale": 1.0, "mscale_all_dim": all_dims}


def _write_ministral3(config: ConfigReader, entries: dict[str, Any]) -> None:
    scaling = config.section("rope_parameters") or config.section("rope_scaling")
    if scaling is None:
        config.refuse("rope_parameters", None, "an object that states llama_4_scaling_beta")
    entries[_BETA] = scaling.positive("llama_4_scaling_beta")
    # What the family checks against the config around it.
    scaling.unused("max_position_embeddings", "original_max_position_embeddings")
    if scaling.optional("mscale", float) == 1 and "rope.scaling.yarn_attn_factor" in entries:
        entries[_LOG_MULTIPLIER] = scaling.positive("mscale_all_dim")


MINISTRAL3 = Architecture(
    name="mistral3",
    model_type="ministral3",
    hf_class="Ministral3ForCausalLM",
    block=BLOCK,
    top=TOP,
    keys=(*keys_with_kv_heads(8), WINDOW),
    silent_head_dim=128,
    null_head_dim=True,
    accepted={**SILU, "layer_types": ("sliding_attention", "full_attention")},
    is_this=_scales_queries,
    reads=_read_ministral3,
    writes=_write_ministral3,
    gguf=_INTERLEAVED,
)

MISTRAL3 = replace(MISTRAL, name="mistral3", is_this=lambda keys: True, reads=_no_window)


def _check_rotating_layers(config: ConfigReader, entries: dict[str, Any]) -> None:
    """llama.cpp leaves each fourth layer without rotation, whatever a file says."""
    layers = entries["block_count"]
    interval = config.size("no_rope_layer_interval", 4)
    rotating = [int((index + 1) % 4 != 0) for index in range(layers)]
    if config.raw("no_rope_layers") not in (None, rotating):
        config.refuse("no_rope_layers", config.raw("no_rope_layers"), "0 in each fourth layer")
    if config.raw("no_rope_layers") is None and interval != 4:
        config.refuse("no_rope_layer_interval", interval, "4")
    config.unused("sliding_window", "max_window_layers", "pretraining_tp")


SMOLLM3 = Architecture(
    name="smollm3",
    model_type="smollm3",
    hf_class="SmolLM3ForCausalLM",
    block=BLOCK,
    top=TOP,
    keys=keys_with_kv_heads(4),
    rope_theta=2e6,
    accepted={**SILU, **NO_WINDOW},
    writes=_check_rotating_layers,
    gguf=_INTERLEAVED,
    bias_keys=BIAS_KEYS,
)


ARCEE = Architecture(
    name="arcee",
    model_type="arcee",
    hf_class="ArceeForCausalLM",
    block={gguf: name for gguf, name in BLOCK.items() if gguf != "ffn_gate"},
    top=TOP,
    keys=(*SIZES, _EPS),
    accepted={"hidden_act": ("relu2",)},
    gguf=_INTERLEAVED,
    bias_keys={"attention_bias": ATTENTION_BIAS, "mlp_bias": MLP_BIAS[1:]},
)

SEED_OSS = Architecture(
    name="seed_oss",
    model_type="seed_oss",
    hf_class="SeedOssForCausalLM",
    block={
        **ATTENTION,
        **GATED_MLP,
        "attn_norm": "input_layernorm",
        "post_attention_norm": "post_attention_layernorm",
    },
    top=TOP,
    keys=keys_with_kv_heads(8),
    silent_head_dim=128,
    null_head_dim=True,
    accepted=SILU,
    bias_keys={
        "attention_bias": ATTENTION_BIAS[:3],
        "attention_out_bias": ATTENTION_BIAS[3:],
        "mlp_bias": MLP_BIAS,
    },
)


INTERNLM3 = replace(
    LLAMA,
    model_type="internlm3",
    hf_class="InternLM3ForCausalLM",
    keys=keys_with_kv_heads(2),
    silent_head_dim=128,
    null_head_dim=True,
    is_this=lambda keys: False,
    bias_keys={"qkv_bias": ATTENTION_BIAS[:3], "bias": (*ATTENTION_BIAS[3:], *MLP_BIAS)},
)


INTERNLM2 = Architecture(
    name="internlm2",
    model_type="internlm2",
    hf_class="InternLM2ForCausalLM",
    block=BLOCK,
    top=TOP,
    keys=KEYS,
    head_dim=False,
    accepted={**SILU, "bias": (False,), "attn_implementation": ()},
    gguf=_INTERLEAVED,
    hf=Conventions(),
    folder_modules={
        "model.embed_tokens": "model.tok_embeddings",
        "lm_head": "output",
    },
    folder_blocks={
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.o_proj": "attention.wo",
        "mlp.gate_proj": "feed_forward.w1",
        "mlp.up_proj": "feed_forward.w3",
        "mlp.down_proj": "feed_forward.w2",
    },
    folder_qkv="attention.wqkv",
)


def _scale_of_width(keys: GGUFKeys, config: dict[str, Any]) -> None:
    """Where a file says nothing llama.cpp scales by the width of a head, config.json by 1."""
    config.setdefault("attention_multiplier", config["head_dim"] ** -0.5)


_GRANITE_KEYS = (
    *KEYS,
    Key("attention.scale", "attention_multiplier", "positive", LEFT_OUT, 1.0, off=0.0),
    Key("embedding_scale", "embedding_multiplier", "positive", LEFT_OUT, 1.0, off=0.0),
    Key("residual_scale", "residual_multiplier", "positive", LEFT_OUT, 1.0, off=0.0),
    # llama.cpp divides by it here, and multiplies in other architectures.
    Key("logit_scale", "logits_scaling", "positive", in_config=1.0),
)

GRANITE = Architecture(
    name="granite",
    model_type="granite",
    hf_class="GraniteForCausalLM",
    block=BLOCK,
    top=TOP,
    keys=_GRANITE_KEYS,
    accepted=SILU,
    # Here it says whether there is a rotation at all.
    neutral={"rope.scaling.finetuned": True},
    reads=_scale_of_width,
    gguf=_INTERLEAVED,
    bias_keys=BIAS_KEYS,
)

GRANITE_MOE = replace(
    GRANITE,
    name="granitemoe",
    model_type="granitemoe",
    hf_class="GraniteMoeForCausalLM",
    block={**PRE_NORMS, **ATTENTION, "ffn_gate_inp": "block_sparse_moe.router.layer"},
    keys=(*_GRANITE_KEYS, *with_defaults(LOCAL_EXPERT_COUNTS, 8, 2)),
    bias_keys={"attention_bias": ATTENTION_BIAS},
    experts={
        "ffn_gate_exps": "block_sparse_moe.experts.{}.gate_proj",
        "ffn_up_exps": "block_sparse_moe.experts.{}.up_proj",
        "ffn_down_exps": "block_sparse_moe.experts.{}.down_proj",
    },
    folder_experts={
        "block_sparse_moe.input_linear.weight": (
            "block_sparse_moe.experts.{}.gate_proj.weight",
            "block_sparse_moe.experts.{}.up_proj.weight",
        ),
        "block_sparse_moe.output_linear.weight": ("block_sparse_moe.experts.{}.down_proj.weight",),
    },
    stacked_in_folders=True,
    routers=("block_sparse_moe.router.layer",),
)
