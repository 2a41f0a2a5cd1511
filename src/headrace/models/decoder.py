"""The layer most decoders share: attention and a gated MLP, each behind its norm and added.

    h = x + scale * attention(norm(x))
    y = h + scale * mlp(norm(h))

Where `head_norms` is set, each head of Q and K goes through a norm of its own before the rotation.
"""

from __future__ import annotations

from typing import ClassVar

from headrace.models.blocks import Attention, GatedMLP, Step
from headrace.models.config import DecoderConfig
from headrace.models.loader import Loader
from headrace.models.model import Layer
from headrace.ops.interface import Array


class PreNormLayer(Layer):
    """One layer; weights by their Hugging Face names under `model.layers.{index}`."""

    head_norms: ClassVar[bool] = False

    def __init__(self, config: DecoderConfig, loader: Loader, index: int) -> None:
        at, eps = f"model.layers.{index}", config.norm_eps
        self.scale = config.residual_scale
        self.input_norm = loader.norm(f"{at}.input_layernorm", config.hidden_size, eps)
        self.attention = Attention.load(config, loader, index, f"{at}.self_attn")
        if self.head_norms:
            head_dim = config.attention.head_dim
            self.attention.q_norm = loader.head_norm(f"{at}.self_attn.q_norm", head_dim, eps)
            self.attention.k_norm = loader.head_norm(f"{at}.self_attn.k_norm", head_dim, eps)
        self.post_norm = loader.norm(f"{at}.post_attention_layernorm", config.hidden_size, eps)
        self.mlp = GatedMLP.load(config, loader, f"{at}.mlp")

    def __call__(self, x: Array, step: Step) -> Array:
        h = self.attention(x, step, norm=self.input_norm, residual=x, scale=self.scale)
        return self.mlp(h, step, norm=self.post_norm, residual=h, scale=self.scale)
