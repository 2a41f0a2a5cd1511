"""Llama 1 to 3: pre-norm decoder with rotary attention in groups and a SiLU-gated MLP.

    q, k, v = qkv_proj(norm(x))
    h = x + o_proj(attention(rope(q), rope(k), v))
    gate, up = gate_up_proj(norm(h))
    y = h + down_proj(silu(gate) * up)

Sources: arXiv 2302.13971, 2307.09288, 2407.21783; transformers modeling_llama.py for the keys.
"""

from __future__ import annotations

from headrace.models.config_reader import ConfigReader
from headrace.models.loader import Loader
from headrace.models.model import DecoderConfig, Layer, Model, read_attention
from headrace.models.rope import RopeConfig
from headrace.ops.interface import (
    Array,
    KVCacheArrays,
    Ops,
    RaggedBatch,
    RopeTable,
)


class LlamaLayer(Layer):
    """Attention and MLP, each behind its norm and added to the residual stream."""

    def __init__(self, config: DecoderConfig, loader: Loader, index: int) -> None:
        hidden, ffn = config.hidden_size, config.intermediate_size
        eps, mlp_bias = config.rms_norm_eps, config.mlp_bias
        at = f"model.layers.{index}"
        self.index = index
        self.shape = config.attention
        self.input_norm = loader.norm(f"{at}.input_layernorm.weight", hidden, eps)
        self.qkv_proj = loader.qkv(
            f"{at}.self_attn", self.shape, hidden, bias=config.attention_bias
        )
        self.o_proj = loader.linear(
            [f"{at}.self_attn.o_proj"],
            [hidden],
            config.attention_width,
            bias=config.attention_bias,
        )
        self.post_norm = loader.norm(f"{at}.post_attention_layernorm.weight", hidden, eps)
        self.gate_up_proj = loader.linear(
            [f"{at}.mlp.gate_proj", f"{at}.mlp.up_proj"], [ffn, ffn], hidden, bias=mlp_bias
        )
        self.down_proj = loader.linear([f"{at}.mlp.down_proj"], [hidden], ffn, bias=mlp_bias)

    def __call__(
        self, ops: Ops, x: Array, rope: RopeTable, kv: KVCacheArrays, batch: RaggedBatch
    ) -> Array:
        qkv = self.qkv_proj(x, norm=self.input_norm)
        ops.rope(qkv, self.shape, rope, batch.positions)
        ops.kv_write(qkv, self.shape, kv, self.index, batch)
        attended = ops.paged_attention(qkv, self.shape, kv, self.index, batch)
        h = self.o_proj(attended, residual=x)
        gate_up = self.gate_up_proj(h, norm=self.post_norm)
        return self.down_proj(ops.gated_activation(gate_up, "silu"), residual=h)


class Llama(Model):
    """LlamaForCausalLM."""

    layer_type = LlamaLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        heads, hidden = reader.size("num_attention_heads"), reader.size("hidden_size")
        head_dim = reader.optional("head_dim", int) or hidden // heads
        if head_dim * heads != hidden and reader.raw("head_dim") is None:
            reader.refuse("hidden_size", hidden, f"multiples of num_attention_heads {heads}")
        reader.expect("hidden_act", str, ("silu", "swish"), "silu")
        window = reader.optional("sliding_window", int)
        if window is not None and reader.get("use_sliding_window", bool, True):
            reader.refuse("sliding_window", window, "null")
        reader.unused("use_sliding_window")
        return DecoderConfig(
            model_type="llama",
            vocab_size=reader.optional("vocab_size", int),
            hidden_size=hidden,
            intermediate_size=reader.size("intermediate_size"),
            num_layers=reader.size("num_hidden_layers"),
            attention=read_attention(reader, heads, head_dim),
            rope=RopeConfig.read(reader),
            max_positions=reader.size("max_position_embeddings", 2048),
            rms_norm_eps=reader.positive("rms_norm_eps", 1e-6),
            attention_bias=reader.optional("attention_bias", bool),
            mlp_bias=reader.optional("mlp_bias", bool),
            tied=reader.optional("tie_word_embeddings", bool),
        )
