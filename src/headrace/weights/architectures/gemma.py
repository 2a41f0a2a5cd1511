"""Gemma 1, 2 and 3, whose norms GGUF files store whole and Hugging Face folders less one.

llama.cpp takes the attention scale from the number of layers: in the largest size (27B) it is that
of hidden / heads, in all others that of the width of a head. GGUF has no word for it.

Source: llama.cpp models/gemma.cpp, gemma2.cpp and gemma3.cpp, conversion/gemma.py.
"""

from __future__ import annotations

from typing import Any

from headrace.weights.architectures.architecture import LEFT_OUT, Architecture, Key
from headrace.weights.architectures.gguf_keys import GGUFKeys
from headrace.weights.architectures.shared import (
    ATTENTION,
    BLOCK,
    GATED_MLP,
    HEAD_NORMS,
    RMS_EPS,
    TOP,
    keys_with_kv_heads,
)
from headrace.weights.architectures.windows import read_layer_types, write_layer_types
from headrace.weights.checkpoint import Conventions
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.rope_config import FULL

_BLOCK = {
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    **ATTENTION,
    **GATED_MLP,
}
_SIZES = (
    Key("context_length", "max_position_embeddings"),
    Key("embedding_length", "hidden_size"),
    Key("block_count", "num_hidden_layers"),
    Key("feed_forward_length", "intermediate_size"),
    Key("attention.head_count", "num_attention_heads", in_config=8),
    Key("attention.head_count_kv", "num_key_value_heads", in_config=4),
    RMS_EPS,
)
_ACCEPTED: dict[str, tuple[object, ...]] = {
    # Older files name the same function as Gemma 1 did.
    "hidden_act": ("gelu_pytorch_tanh", "gelu"),
    "attention_bias": (False,),
    "use_bidirectional_attention": (False,),
}
_IMPLIED = {"hidden_activation": "gelu_pytorch_tanh"}
_HEAD_DIM = 256
_LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}


def _scalar(name: str, layers: int, hidden: int, heads: int, head_dim: int) -> int:
    """query_pre_attn_scalar as llama.cpp has it."""
    return hidden // heads if layers == _LAYERS_OF_27B[name] else head_dim


def _read_scalar(name: str, config: dict[str, Any]) -> None:
    config["query_pre_attn_scalar"] = _scalar(
        name,
        config["num_hidden_layers"],
        config["hidden_size"],
        config["num_attention_heads"],
        config["head_dim"],
    )


def _write_scalar(name: str, config: ConfigReader) -> None:
    layers, hidden = config.size("num_hidden_layers"), config.size("hidden_size")
    heads, head_dim = config.size("num_attention_heads"), config.size("head_dim", _HEAD_DIM)
    implied = _scalar(name, layers, hidden, heads, head_dim)
    config.expect("query_pre_attn_scalar", float, (float(implied),), 256.0)


def _read_gemma2(keys: GGUFKeys, config: dict[str, Any]) -> None:
    _read_scalar("gemma2", config)
    read_layer_types(keys, config)


def _write_gemma2(config: ConfigReader, entries: dict[str, Any]) -> None:
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if config.states(key) and config.raw(key) is None:
            config.refuse(key, None, "numbers: llama.cpp takes its own where a file has none")
    _write_scalar("gemma2", config)
    write_layer_types(config, entries, 2)
    window = entries["attention.sliding_window"]
    config.expect("sliding_window_size", int, (window,), window)


# llama.cpp ties the embeddings whatever the file holds.
_TIED = {gguf: name for gguf, name in TOP.items() if gguf != "output"}

GEMMA = Architecture(
    name="gemma",
    model_type="gemma",
    hf_class="GemmaForCausalLM",
    block=BLOCK,
    top=_TIED,
    keys=keys_with_kv_heads(16),
    silent_head_dim=_HEAD_DIM,
    null_head_dim=True,
    accepted={**_ACCEPTED, "hidden_activation": ("gelu_pytorch_tanh",)},
    hf=Conventions(norm_offset=1.0),
)

GEMMA2 = Architecture(
    name="gemma2",
    model_type="gemma2",
    hf_class="Gemma2ForCausalLM",
    silent_head_dim=_HEAD_DIM,
    block=_BLOCK,
    top=_TIED,
    keys=(
        *_SIZES,
        Key("attention.sliding_window", "sliding_window", in_gguf=4096, in_config=4096),
        Key(
            "attn_logit_softcapping", "attn_logit_softcapping", "positive",
            in_gguf=50.0, in_config=50.0,
        ),
        Key(
            "final_logit_softcapping", "final_logit_softcapping", "positive",
            in_gguf=30.0, in_config=30.0,
        ),
    ),
    implied=_IMPLIED,
    accepted=_ACCEPTED,
    reads=_read_gemma2,
    writes=_write_gemma2,
    hf=Conventions(norm_offset=1.0),
)  # fmt: skip


def _read_gemma3(keys: GGUFKeys, config: dict[str, Any]) -> None:
    _read_scalar("gemma3", config)
    if "sliding_window" in config:
        read_layer_types(keys, config)
    else:
        config["layer_types"] = [FULL] * config["num_hidden_layers"]


def _write_gemma3(config: ConfigReader, entries: dict[str, Any]) -> None:
    _write_scalar("gemma3", config)
    write_layer_types(config, entries, 6)


GEMMA3 = Architecture(
    name="gemma3",
    model_type="gemma3_text",
    hf_class="Gemma3ForCausalLM",
    silent_head_dim=_HEAD_DIM,
    block={**_BLOCK, **HEAD_NORMS},
    top=TOP,
    keys=(
        *_SIZES,
        Key("attention.sliding_window", "sliding_window", in_gguf=LEFT_OUT, in_config=4096, off=0),
        Key(
            "final_logit_softcapping", "final_logit_softcapping", "positive",
            in_gguf=LEFT_OUT, in_config=LEFT_OUT, off=0.0,
        ),
    ),
    rope_theta=1e6,
    local_theta=1e4,
    implied=_IMPLIED,
    accepted={**_ACCEPTED, "attn_logit_softcapping": ()},
    reads=_read_gemma3,
    writes=_write_gemma3,
    hf=Conventions(norm_offset=1.0),
)  # fmt: skip
