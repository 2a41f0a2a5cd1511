"""Llama 4, text: rows of Q and K interleaved in both containers, folders with turned stacks.

llama.cpp has numbers of its own for what config.json states: chunks of 8,192 tokens in three layers
of four, no rotation in the fourth, how queries grow with the position, and norms of Q and K where
there are not 128 experts. A file with a window of 0 has neither chunks nor layers that do not
rotate.

Source: llama.cpp models/llama4.cpp, conversion/llama.py.
"""

from __future__ import annotations

from typing import Any

from headrace.weights.architectures.architecture import Architecture, Key
from headrace.weights.architectures.gguf_keys import GGUFKeys
from headrace.weights.architectures.shared import (
    ATTENTION,
    ATTENTION_BIAS,
    LOCAL_EXPERT_COUNTS,
    PRE_NORMS,
    SILU,
    TOP,
    with_defaults,
)
from headrace.weights.checkpoint import Conventions
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.rope_config import CHUNKED, FULL

_INTERLEAVED = Conventions(rope_layout="interleaved")
_WINDOW = "attention.sliding_window"
_CHUNK = 8192
_EXPERTS_WITHOUT_NORMS = 128


def _rotating(layers: int) -> list[int]:
    return [int((index + 1) % 4 != 0) for index in range(layers)]


def _read(keys: GGUFKeys, config: dict[str, Any]) -> None:
    layers, window = config["num_hidden_layers"], keys.take(_WINDOW)
    if window not in (None, 0, _CHUNK):
        raise keys.error(_WINDOW, window, f"0 or {_CHUNK} is required")
    rotating = [1] * layers if window == 0 else _rotating(layers)
    config["no_rope_layers"] = rotating
    config["layer_types"] = [CHUNKED if turns and window != 0 else FULL for turns in rotating]
    config["use_qk_norm"] = config["num_local_experts"] != _EXPERTS_WITHOUT_NORMS


def _write(config: ConfigReader, entries: dict[str, Any]) -> None:
    layers = entries["block_count"]
    kinds, rotating = config.raw("layer_types"), config.raw("no_rope_layers") or None
    interval = config.size("no_rope_layer_interval", 4)
    if rotating is None and interval != 4:
        config.refuse("no_rope_layer_interval", interval, "4")
    if kinds == [FULL] * layers and rotating == [1] * layers:
        entries[_WINDOW] = 0
    else:
        usual = _rotating(layers)
        if rotating not in (None, usual):
            config.refuse("no_rope_layers", rotating, "0 in each fourth layer")
        if kinds not in (None, [CHUNKED if turns else FULL for turns in usual]):
            config.refuse("layer_types", kinds, f"{FULL!r} in each fourth layer")
    normed = entries["expert_count"] != _EXPERTS_WITHOUT_NORMS
    config.expect("use_qk_norm", bool, (normed,), True)
    step = entries["interleave_moe_layer_step"]
    if config.raw("moe_layers") not in (None, [*range(step - 1, layers, step)]):
        config.refuse("moe_layers", config.raw("moe_layers"), f"each layer of {step}")


LLAMA4 = Architecture(
    name="llama4",
    model_type="llama4_text",
    hf_class="Llama4ForCausalLM",
    silent_head_dim=128,
    block={
        **PRE_NORMS,
        **ATTENTION,
        "ffn_gate": "feed_forward.gate_proj",
        "ffn_up": "feed_forward.up_proj",
        "ffn_down": "feed_forward.down_proj",
        "ffn_gate_inp": "feed_forward.router",
        "ffn_gate_shexp": "feed_forward.shared_expert.gate_proj",
        "ffn_up_shexp": "feed_forward.shared_expert.up_proj",
        "ffn_down_shexp": "feed_forward.shared_expert.down_proj",
    },
    top=TOP,
    keys=(
        Key("context_length", "max_position_embeddings", in_config=131072),
        Key("embedding_length", "hidden_size"),
        Key("block_count", "num_hidden_layers"),
        Key("feed_forward_length", "intermediate_size_mlp", in_config=16384),
        Key("expert_feed_forward_length", "intermediate_size"),
        Key("attention.head_count", "num_attention_heads"),
        Key("attention.head_count_kv", "num_key_value_heads", in_config=8),
        Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", "positive", in_config=1e-5),
        *with_defaults(LOCAL_EXPERT_COUNTS, 16, 1),
        Key("interleave_moe_layer_step", "interleave_moe_layer_step", in_config=1),
    ),
    rope_theta=500000.0,
    implied={
        "attention_chunk_size": _CHUNK,
        "attn_temperature_tuning": True,
        "floor_scale": 8192,
        "attn_scale": 0.1,
    },
    accepted={**SILU, "router_jitter_noise": ()},
    reads=_read,
    writes=_write,
    gguf=_INTERLEAVED,
    hf=_INTERLEAVED,
    bias_keys={"attention_bias": ATTENTION_BIAS},
    experts={
        "ffn_gate_exps": "feed_forward.experts.{}.gate_proj",
        "ffn_up_exps": "feed_forward.experts.{}.up_proj",
        "ffn_down_exps": "feed_forward.experts.{}.down_proj",
    },
    folder_experts={
        "feed_forward.experts.gate_up_proj": (
            "feed_forward.experts.{}.gate_proj.weight",
            "feed_forward.experts.{}.up_proj.weight",
        ),
        "feed_forward.experts.down_proj": ("feed_forward.experts.{}.down_proj.weight",),
    },
    stacked_in_folders=True,
    turned_stacks="joined",
    routers=("feed_forward.router",),
)
