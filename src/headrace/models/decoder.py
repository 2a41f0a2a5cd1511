"""The layer most decoders share: attention and a gated MLP, each behind its norm and added.

    q, k, v = qkv_proj(norm(x))
    h = x + o_proj(attention(rope(q), rope(k), v))
    gate, up = gate_up_proj(norm(h))
    y = h + down_proj(silu(gate) * up)

Where `head_norms` is set, each head of Q and K goes through a norm of its own before the rotation.
"""

from __future__ import annotations

from typing import ClassVar

from headrace.models.loader import Loader
from headrace.models.model import DecoderConfig, Layer
from headrace.ops.interface import Array, KVCacheArrays, Norm, Ops, RaggedBatch, RopeTable


class PreNormLayer(Layer):
    """One layer; weights by their Hugging Face names under `model.layers.{index}`."""

    head_norms: ClassVar[bool] = False

    def __init__(self, config: DecoderConfig, loader: Loader, index: int) -> None:
        hidden, ffn, eps = config.hidden_size, config.intermediate_size, config.rms_norm_eps
        bias, mlp_bias = config.attention_bias, config.mlp_bias
        at = f"model.layers.{index}"
        self.index = index
        self.shape = config.attention
        self.input_norm = loader.norm(f"{at}.input_layernorm.weight", hidden, eps)
        self.qkv_proj = loader.qkv(f"{at}.self_attn", self.shape, hidden, bias=bias)
        self.q_norm: Norm | None = None
        self.k_norm: Norm | None = None
        if self.head_norms:
            head_dim = self.shape.head_dim
            self.q_norm = loader.head_norm(f"{at}.self_attn.q_norm.weight", head_dim, eps)
            self.k_norm = loader.head_norm(f"{at}.self_attn.k_norm.weight", head_dim, eps)
        self.o_proj = loader.linear(
            [f"{at}.self_attn.o_proj"], [hidden], config.attention_width, bias=bias
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
        ops.rope(qkv, self.shape, rope, batch.positions, q_norm=self.q_norm, k_norm=self.k_norm)
        ops.kv_write(qkv, self.shape, kv, self.index, batch)
        attended = ops.paged_attention(qkv, self.shape, kv, self.index, batch)
        h = self.o_proj(attended, residual=x)
        gate_up = self.gate_up_proj(h, norm=self.post_norm)
        return self.down_proj(ops.gated_activation(gate_up, "silu"), residual=h)
