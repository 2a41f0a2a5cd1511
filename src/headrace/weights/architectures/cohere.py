"""Cohere Command-R and Command-R7B: rows of Q and K interleaved in both containers, heads tied.

Source: llama.cpp models/command-r.cpp and cohere2.cpp, conversion/command_r.py.
"""

from __future__ import annotations

from typing import Any

from headrace.weights.architectures.architecture import Architecture, Key
from headrace.weights.architectures.gguf_keys import GGUFKeys
from headrace.weights.architectures.shared import (
    ATTENTION,
    ATTENTION_BIAS,
    GATED_MLP,
    HEAD_NORMS,
    SILU,
    SIZES,
    TOP,
)
from headrace.weights.architectures.windows import read_layer_types, write_layer_types
from headrace.weights.checkpoint import Conventions
from headrace.weights.model_config.config_reader import ConfigReader

_BLOCK = {"attn_norm": "input_layernorm", **ATTENTION, **GATED_MLP}
# llama.cpp ties the embeddings whatever the file holds.
_TOP = {gguf: name for gguf, name in TOP.items() if gguf != "output"}
_KEYS = (
    *SIZES,
    Key("attention.layer_norm_epsilon", "layer_norm_eps", "positive", in_config=1e-5),
    Key("logit_scale", "logit_scale", "positive", in_gguf=1.0, in_config=0.0625),
)
_INTERLEAVED = Conventions(rope_layout="interleaved")


def _write_length(config: ConfigReader, entries: dict[str, Any]) -> None:
    """Command-R's own statement of its length goes before that of the config's usual key."""
    stated = config.optional("model_max_length", int)
    if stated is not None:
        entries["context_length"] = config.size("model_max_length")


COHERE = Architecture(
    name="command-r",
    model_type="cohere",
    hf_class="CohereForCausalLM",
    block={**_BLOCK, **HEAD_NORMS},
    top=_TOP,
    keys=_KEYS,
    rope_theta=500000.0,
    accepted=SILU,
    writes=_write_length,
    gguf=_INTERLEAVED,
    hf=_INTERLEAVED,
    bias_keys={"attention_bias": ATTENTION_BIAS},
    norm_keys={"use_qk_norm": ("self_attn.q_norm", "self_attn.k_norm")},
)


def _read_cohere2(keys: GGUFKeys, config: dict[str, Any]) -> None:
    read_layer_types(keys, config)


def _write_cohere2(config: ConfigReader, entries: dict[str, Any]) -> None:
    write_layer_types(config, entries, 4)


COHERE2 = Architecture(
    name="cohere2",
    model_type="cohere2",
    hf_class="Cohere2ForCausalLM",
    block=_BLOCK,
    top=_TOP,
    keys=(*_KEYS, Key("attention.sliding_window", "sliding_window", in_config=4096)),
    accepted={
        **SILU,
        "attention_bias": (False,),
        "layer_switch": (),
        "order_of_interleaved_layers": ("local_attn_first",),
        "position_embedding_type": ("rope_gptj",),
        "rotary_pct": (1.0,),
        "use_embedding_sharing": (True,),
        "use_gated_activation": (True,),
        "use_parallel_block": (True,),
        "use_parallel_embedding": (),
        "use_qk_norm": (False,),
    },
    reads=_read_cohere2,
    writes=_write_cohere2,
    gguf=_INTERLEAVED,
    hf=_INTERLEAVED,
)
