"""GPT-2 and StarCoder 1, whose folders have GPT-2's own names and keys.

llama.cpp approximates GELU by tanh in all files. GPT-2's config.json says so; StarCoder 1's says
the exact function, which is what its GGUF files stand for here, so that both kinds of file are the
same model. Head by head rows of Q, K and V (StarCoder without `multi_query`) are joined in GGUF.

Source: llama.cpp models/gpt2.cpp and starcoder.cpp, conversion/gpt2.py and starcoder.py.
"""

from __future__ import annotations

from typing import Any

from headrace.weights.architectures.architecture import LEFT_OUT, Architecture, Key
from headrace.weights.architectures.gguf_keys import GGUFKeys
from headrace.weights.architectures.shared import GELU_TANH
from headrace.weights.checkpoint import Conventions
from headrace.weights.model_config.config_reader import ConfigReader

_HEADS = "attention.head_count_kv"
_BLOCK = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
_TOP = {
    "token_embd": "transformer.wte",
    "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
}
_KEYS = (
    Key("context_length", "n_positions", in_config=1024),
    Key("embedding_length", "n_embd"),
    Key("block_count", "n_layer"),
    Key("feed_forward_length", "n_inner", in_config=LEFT_OUT),
    Key("attention.head_count", "n_head"),
    Key("attention.layer_norm_epsilon", "layer_norm_epsilon", "positive", in_config=1e-5),
)
_ACCEPTED = {"scale_attn_weights": (True,)}


def _write_lengths(config: ConfigReader, entries: dict[str, Any]) -> None:
    """The width of the MLP where it is the usual one, and the length stated twice."""
    entries.setdefault("feed_forward_length", 4 * config.size("n_embd"))
    positions = config.size("n_positions", 1024)
    config.expect("n_ctx", int, (positions,), positions)


def _read_gpt2(keys: GGUFKeys, config: dict[str, Any]) -> None:
    heads = config["n_head"]
    stated = keys.size(_HEADS) or heads
    if stated != heads:
        raise keys.error(_HEADS, stated, f"it must be head_count {heads} in this architecture")


GPT2 = Architecture(
    name="gpt2",
    model_type="gpt2",
    hf_class="GPT2LMHeadModel",
    block=_BLOCK,
    top=_TOP,
    keys=_KEYS,
    layers="transformer.h",
    rope=False,
    head_dim=False,
    accepted={
        **_ACCEPTED,
        "activation_function": GELU_TANH,
        "scale_attn_by_inverse_layer_idx": (False,),
    },
    reads=_read_gpt2,
    writes=_write_lengths,
    hf=Conventions(transposed=True),
    hf_prefix="transformer.",
)


def _read_starcoder(keys: GGUFKeys, config: dict[str, Any]) -> None:
    heads = config["n_head"]
    kv_heads = keys.size(_HEADS) or heads
    if kv_heads not in (1, heads):
        raise keys.error(_HEADS, kv_heads, f"1 or head_count {heads} is required")
    config["multi_query"] = kv_heads == 1
    config["activation_function"] = "gelu"


def _heads(config: ConfigReader) -> tuple[int, int]:
    """Heads of Q, and of K and V."""
    heads = config.size("n_head")
    return heads, 1 if config.get("multi_query", bool, True) else heads


def _write_starcoder(config: ConfigReader, entries: dict[str, Any]) -> None:
    _write_lengths(config, entries)
    _, kv_heads = _heads(config)
    entries[_HEADS] = kv_heads
    config.expect("num_key_value_heads", int, (kv_heads,), kv_heads)
    config.expect("activation_function", str, ("gelu",), GELU_TANH[0])


STARCODER = Architecture(
    name="starcoder",
    model_type="gpt_bigcode",
    hf_class="GPTBigCodeForCausalLM",
    block=_BLOCK,
    top=_TOP,
    keys=_KEYS,
    layers="transformer.h",
    rope=False,
    head_dim=False,
    accepted=_ACCEPTED,
    fused_heads=_heads,
    reads=_read_starcoder,
    writes=_write_starcoder,
    hf=Conventions(qkv_layout="grouped"),
    hf_prefix="transformer.",
)
