"""Llama-Nemotron of a search over layers (49B Super, 51B, 253B Ultra): Llama whose layers differ.

    h = x + o_proj(attention(rope(q), rope(k), v))     q, k, v = qkv_proj(norm(x));  or h = x
    y = h + down_proj(silu(gate) * up)                 gate, up = gate_up_proj(norm(h));  or y = h

`block_configs` says of each layer whether it has attention and an MLP (`no_op`), how many heads of
Q share one of K and V (`n_heads_in_group`), and how wide its MLP is: `ffn_mult` times 2/3 of
hidden_size, rounded up to a multiple of 256. A layer without attention keeps nothing in the cache.
Layers that were replaced by one matrix, and sinks and windows that these configs may state, are
refused.
Sources: arXiv 2411.19146, 2505.00949; llama.cpp models/deci.cpp and conversion/deci.py for
arithmetic and keys; the published config.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace.models.blocks import Attention, GatedMLP, Step
from headrace.models.config import DecoderConfig
from headrace.models.loader import Loader
from headrace.models.model import Layer, Model
from headrace.models.rope import RopeConfig
from headrace.ops.kv import AttentionShape
from headrace.ops.operands import Array
from headrace.weights.model_config.block_configs import width_of
from headrace.weights.model_config.config_reader import ConfigReader


class Block(NamedTuple):
    """One entry of `block_configs`."""

    kv_group: int
    """Heads of Q to one of K and V; 0 without attention."""
    width: int
    """Of the MLP; 0 without one."""


class NemotronNASLayer(Layer):
    """A layer that may lack attention or an MLP."""

    def __init__(self, config: DecoderConfig, loader: Loader, index: int) -> None:
        at, hidden, eps = f"model.layers.{index}", config.hidden_size, config.norm_eps
        width = config.mlp_widths[index]
        self.attention: Attention | None = None
        self.mlp: GatedMLP | None = None
        if config.attends[index]:
            self.input_norm = loader.norm(f"{at}.input_layernorm", hidden, eps)
            self.attention = Attention.load(config, loader, index, f"{at}.self_attn")
        if width:
            self.post_norm = loader.norm(f"{at}.post_attention_layernorm", hidden, eps)
            self.mlp = GatedMLP.load(config, loader, f"{at}.mlp", width=width)

    def __call__(self, x: Array, step: Step) -> Array:
        if self.attention is not None:
            x = self.attention(x, step, norm=self.input_norm, residual=x)
        return x if self.mlp is None else self.mlp(x, step, norm=self.post_norm, residual=x)


class NemotronNAS(Model):
    """DeciLMForCausalLM."""

    layer_type = NemotronNASLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        heads, layers = reader.size("num_attention_heads"), reader.size("num_hidden_layers")
        hidden = reader.size("hidden_size")
        if hidden % (2 * heads):
            reader.refuse("hidden_size", hidden, f"even multiples of num_attention_heads {heads}")
        reader.expect("hidden_act", str, ("silu", "swish"), "silu")
        blocks = _read_blocks(reader, layers, hidden)
        groups = [block.kv_group for block in blocks]
        if not any(groups) or any(group and heads % group for group in groups):
            reader.refuse("block_configs", groups, f"n_heads_in_group that divide {heads}")
        # The blocks say both.
        reader.unused("num_key_value_heads", "intermediate_size")
        head_dim = hidden // heads
        # A layer without attention has a shape as well, which nobody reads.
        shapes = tuple(
            AttentionShape(heads, heads // (group or heads), head_dim, scale=head_dim**-0.5)
            for group in groups
        )
        return DecoderConfig(
            model_type="nemotron-nas",
            vocab_size=reader.optional("vocab_size", int),
            hidden_size=hidden,
            intermediate_size=max(block.width for block in blocks),
            num_layers=layers,
            attention=next(shapes[at] for at, group in enumerate(groups) if group),
            layer_attention=shapes,
            rope=RopeConfig.read(reader),
            max_positions=reader.size("max_position_embeddings", 2048),
            norm_eps=reader.positive("rms_norm_eps", 1e-6),
            attention_bias=reader.optional("attention_bias", bool),
            mlp_bias=reader.optional("mlp_bias", bool),
            tied=reader.optional("tie_word_embeddings", bool),
            attends=tuple(block.kv_group > 0 for block in blocks),
            mlp_widths=tuple(block.width for block in blocks),
        )


def _read_blocks(reader: ConfigReader, layers: int, hidden: int) -> list[Block]:
    stated = reader.raw("block_configs")
    if not isinstance(stated, list) or len(stated) != layers:
        reader.refuse("block_configs", stated, f"lists of {layers} objects")
    return [_read_block(block, f"block_configs.{at}.", hidden) for at, block in enumerate(stated)]


def _read_block(stated: Any, prefix: str, hidden: int) -> Block:
    reader = ConfigReader(stated if isinstance(stated, Mapping) else {}, prefix=prefix)
    attention, ffn = reader.section("attention"), reader.section("ffn")
    if attention is None or ffn is None:
        reader.refuse("attention", stated, "objects with attention and ffn")
    for part in (attention, ffn):
        part.expect("replace_with_linear", bool, (False,), False)
    for key in ("unshifted_sink", "use_prefill_window_in_sink_attention"):
        attention.expect(key, bool, (False,), False)
    group = width = 0
    if attention.get("no_op", bool, False):
        attention.unused("n_heads_in_group")
    else:
        group = attention.size("n_heads_in_group")
    if ffn.get("no_op", bool, False):
        ffn.unused("ffn_mult")
    else:
        width = width_of(ffn.positive("ffn_mult"), hidden)
        if not 0 < width < 1 << 31:
            ffn.refuse("ffn_mult", ffn.raw("ffn_mult"), "numbers whose width has 31 bits")
    reader.finish()
    return Block(group, width)
