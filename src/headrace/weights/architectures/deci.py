"""Nemotron of a search over layers ("deci"): Llama's files, with a number for each layer.

Heads of Q, of K and V, and widths of MLPs are arrays; 0 heads, or a width of 0, mean that a layer
has none. A layer with heads of Q and none of K and V has one matrix for its attention, and is
refused.

Source: llama.cpp models/deci.cpp, conversion/deci.py.
"""

from __future__ import annotations

from typing import Any

from headrace.weights.architectures.architecture import Architecture, Key
from headrace.weights.architectures.gguf_keys import GGUFKeys
from headrace.weights.architectures.shared import BIAS_KEYS, BLOCK, SILU, TOP
from headrace.weights.checkpoint import Conventions
from headrace.weights.model_config.block_configs import MULTIPLE, multiplier_of, width_of
from headrace.weights.model_config.config_reader import ConfigReader

_HEADS, _KV_HEADS = "attention.head_count", "attention.head_count_kv"
_WIDTHS = "feed_forward_length"


def _read(keys: GGUFKeys, config: dict[str, Any]) -> None:
    layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
    hidden = config["hidden_size"]
    stated = zip(*(keys.counts(key, layers) for key in (_HEADS, _KV_HEADS, _WIDTHS)), strict=True)
    blocks = []
    for q_heads, kv_heads, width in stated:
        if q_heads not in (0, heads) or bool(q_heads) is not bool(kv_heads):
            raise keys.error(_HEADS, q_heads, f"0 or {heads}, and heads of K and V to them")
        if kv_heads and heads % kv_heads:
            raise keys.error(_KV_HEADS, kv_heads, f"a divisor of {heads} is required")
        if width % MULTIPLE:
            raise keys.error(_WIDTHS, width, f"a multiple of {MULTIPLE} is required")
        attention = {"n_heads_in_group": heads // kv_heads if kv_heads else None}
        ffn = {"ffn_mult": multiplier_of(width, hidden) if width else None}
        blocks.append(
            {
                "attention": {**attention, "no_op": not kv_heads, "replace_with_linear": False},
                "ffn": {**ffn, "no_op": not width, "replace_with_linear": False},
            }
        )
    config["block_configs"] = blocks


def _write(config: ConfigReader, entries: dict[str, Any]) -> None:
    """What families read of a block is checked when a model is loaded; here the numbers go over."""
    heads, hidden = entries[_HEADS], entries["embedding_length"]
    blocks, count = config.raw("block_configs"), entries["block_count"]
    if not isinstance(blocks, list) or len(blocks) != count:
        config.refuse("block_configs", blocks, f"lists of {count} objects")
    kv_heads, widths = [], []
    for at, block in enumerate(blocks):
        if not isinstance(block, dict):
            config.refuse("block_configs", blocks, f"lists of {count} objects")
        reader = ConfigReader(block, prefix=f"block_configs.{at}.")
        attention, ffn = reader.section("attention"), reader.section("ffn")
        if attention is None or ffn is None:
            reader.refuse("attention", block, "objects with attention and ffn")
        for part, keys in (
            (attention, ("unshifted_sink", "use_prefill_window_in_sink_attention")), (ffn, ()),
        ):  # fmt: skip
            for key in ("replace_with_linear", *keys):
                part.expect(key, bool, (False,), False)
        group = 0 if attention.get("no_op", bool, False) else attention.size("n_heads_in_group")
        attention.unused("n_heads_in_group")
        absent = ffn.get("no_op", bool, False)
        widths.append(0 if absent else width_of(ffn.positive("ffn_mult"), hidden))
        ffn.unused("ffn_mult")
        kv_heads.append(heads // group if group else 0)
        reader.finish()
    config.unused("num_key_value_heads", "intermediate_size")
    entries[_HEADS] = [heads if kv else 0 for kv in kv_heads]
    entries[_KV_HEADS] = kv_heads
    entries[_WIDTHS] = widths


DECI = Architecture(
    name="deci",
    model_type="nemotron-nas",
    hf_class="DeciLMForCausalLM",
    block=BLOCK,
    top=TOP,
    keys=(
        Key("context_length", "max_position_embeddings", in_config=2048),
        Key("embedding_length", "hidden_size"),
        Key("block_count", "num_hidden_layers"),
        Key(_HEADS, "num_attention_heads", "largest"),
        Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", "positive"),
    ),
    head_dim=False,
    accepted=SILU,
    reads=_read,
    writes=_write,
    gguf=Conventions(rope_layout="interleaved"),
    bias_keys=BIAS_KEYS,
    layers_differ=True,
)
