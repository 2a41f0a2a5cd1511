"""Qwen3 (dense): Llama's decoder with a norm over each head of Q and K before the rotation.

    q, k, v = qkv_proj(norm(x))
    h = x + o_proj(attention(rope(q_norm(q)), rope(k_norm(k)), v))
    gate, up = gate_up_proj(norm(h))
    y = h + down_proj(silu(gate) * up)

head_dim is a key of its own and need not be hidden_size / heads.
Sources: arXiv 2505.09388; transformers modeling_qwen3.py for the keys.
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


class Qwen3Layer(Layer):
    """Attention with QK norm and MLP, each behind its norm and added to the residual stream."""

    def __init__(self, config: DecoderConfig, loader: Loader, index: int) -> None:
        hidden, ffn = config.hidden_size, config.intermediate_size
        eps, head_dim = config.rms_norm_eps, config.attention.head_dim
        at = f"model.layers.{index}"
        self.index = index
        self.shape = config.attention
        self.input_norm = loader.norm(f"{at}.input_layernorm.weight", hidden, eps)
        self.qkv_proj = loader.qkv(
            f"{at}.self_attn", self.shape, hidden, bias=config.attention_bias
        )
        self.q_norm = loader.head_norm(f"{at}.self_attn.q_norm.weight", head_dim, eps)
        self.k_norm = loader.head_norm(f"{at}.self_attn.k_norm.weight", head_dim, eps)
        self.o_proj = loader.linear(
            [f"{at}.self_attn.o_proj"],
            [hidden],
            config.attention_width,
            bias=config.attention_bias,
        )
        self.post_norm = loader.norm(f"{at}.post_attention_layernorm.weight", hidden, eps)
        self.gate_up_proj = loader.linear(
            [f"{at}.mlp.gate_proj", f"{at}.mlp.up_proj"], [ffn, ffn], hidden, bias=False
        )
        self.down_proj = loader.linear([f"{at}.mlp.down_proj"], [hidden], ffn, bias=False)

    def __call__(
        self, ops: Ops, x: Array, rope: RopeTable, kv: KVCacheArrays, batch: RaggedBatch
    ) -> Array:
        qkv = self.qkv_proj(x, norm=self.input_norm)
        ops.rope(qkv, self.shape, rope, batch.positions, q_norm=self.q_norm, k_norm=self.k_norm)
        ops.kv_write(qkv, self.shape, kv, self.index, batch)
        attended = ops.paged_attention(qkv, self.shape, kv, self.index, batch)
        h = self.o_proj(attended, residual=x)
        gate_up = self.gate_up_proj(h, norm=self.post_norm)
        return self.down_proj(ops.gated_activation(gate_up, "silu"), residual=h)


class Qwen3(Model):
    """Qwen3ForCausalLM."""

    layer_type = Qwen3Layer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        heads = reader.size("num_attention_heads")
        head_dim = reader.size("head_dim", 128)
        layers = reader.size("num_hidden_layers")
        reader.expect("hidden_act", str, ("silu", "swish"), "silu")
        reader.expect("use_sliding_window", bool, (False,), False)
        # Windows are off; which layers would have one no longer matters, but the list must agree.
        reader.unused("sliding_window", "max_window_layers")
        reader.expect_all("layer_types", "full_attention", layers)
        return DecoderConfig(
            model_type="qwen3",
            vocab_size=reader.optional("vocab_size", int),
            hidden_size=reader.size("hidden_size"),
            intermediate_size=reader.size("intermediate_size"),
            num_layers=layers,
            attention=read_attention(reader, heads, head_dim),
            rope=RopeConfig.read(reader),
            max_positions=reader.size("max_position_embeddings", 32768),
            rms_norm_eps=reader.positive("rms_norm_eps", 1e-6),
            attention_bias=reader.optional("attention_bias", bool),
            tied=reader.optional("tie_word_embeddings", bool),
        )
