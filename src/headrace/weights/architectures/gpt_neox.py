"""GPT-NeoX and Pythia: names and keys of their own, and Q, K and V as one matrix, head by head.

llama.cpp approximates GELU by tanh in all files; config.json of these models says the exact
function, which is what their GGUF files stand for here, so that both kinds of file are one model.

Source: llama.cpp models/gptneox.cpp, conversion/gptneox.py; transformers configuration_gpt_neox.py.
"""

from __future__ import annotations

from typing import Any

from headrace.weights.architectures.architecture import Architecture, Key
from headrace.weights.architectures.gguf_keys import GGUFKeys
from headrace.weights.checkpoint import Conventions
from headrace.weights.model_config.config_reader import ConfigReader

_PARALLEL = "use_parallel_residual"


def _read(keys: GGUFKeys, config: dict[str, Any]) -> None:
    parallel = keys.take(_PARALLEL)
    if not isinstance(parallel, bool):
        raise keys.error(_PARALLEL, parallel, "a boolean is required")
    config[_PARALLEL] = parallel
    # What config.json calls them.
    config["rotary_emb_base"] = config.pop("rope_theta")
    config["rotary_pct"] = config.pop("partial_rotary_factor")


def _write(config: ConfigReader, entries: dict[str, Any]) -> None:
    entries[_PARALLEL] = config.get(_PARALLEL, bool, True)


def _heads(config: ConfigReader) -> tuple[int, int]:
    heads = config.size("num_attention_heads")
    return heads, heads


GPT_NEOX = Architecture(
    name="gptneox",
    model_type="gpt_neox",
    hf_class="GPTNeoXForCausalLM",
    block={
        "attn_norm": "input_layernorm",
        "attn_qkv": "attention.query_key_value",
        "attn_output": "attention.dense",
        "ffn_norm": "post_attention_layernorm",
        "ffn_up": "mlp.dense_h_to_4h",
        "ffn_down": "mlp.dense_4h_to_h",
    },
    top={
        "token_embd": "gpt_neox.embed_in",
        "output_norm": "gpt_neox.final_layer_norm",
        "output": "lm_head",
    },
    keys=(
        Key("context_length", "max_position_embeddings", in_config=2048),
        Key("embedding_length", "hidden_size"),
        Key("block_count", "num_hidden_layers"),
        Key("feed_forward_length", "intermediate_size"),
        Key("attention.head_count", "num_attention_heads"),
        Key("attention.layer_norm_epsilon", "layer_norm_eps", "positive", in_config=1e-5),
    ),
    layers="gpt_neox.layers",
    head_dim=False,
    partial=0.25,
    rope_keys=("rotary_emb_base", "rotary_pct"),
    implied={"hidden_act": "gelu"},
    fused_heads=_heads,
    reads=_read,
    writes=_write,
    hf=Conventions(qkv_layout="grouped"),
    hf_prefix="gpt_neox.",
    folder_modules={"lm_head": "embed_out"},
    bias_keys={"attention_bias": ("attention.query_key_value", "attention.dense")},
)
