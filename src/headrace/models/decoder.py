"""Layers that decoders share: attention and a gated MLP, with norms before or after them.

PreNormLayer, each behind its norm and added:

    h = x + scale * attention(norm(x))
    y = h + scale * mlp(norm(h))

PostNormLayer, what each adds normed as well (or only that):

    h = x + norm(attention(norm(x)))
    y = h + norm(mlp(norm(h)))

Where `head_norms` is set, each head of Q and K goes through a norm of its own before the rotation.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from headrace.models.blocks import MLP, Attention, GatedMLP, Step
from headrace.models.config import DecoderConfig
from headrace.models.experts import ExpertNames, Experts
from headrace.models.latent_attention import LatentAttention
from headrace.models.loader import Loader
from headrace.models.model import Layer
from headrace.ops.operands import Array, Norm


class PreNormLayer(Layer):
    """One layer; weights by their Hugging Face names under `model.layers.{index}`.

    Families that name them otherwise, or have other parts, override the methods that load.
    """

    head_norms: ClassVar[bool] = False
    layers_name: ClassVar[str] = "model.layers"
    input_norm_name: ClassVar[str] = "input_layernorm"
    post_norm_name: ClassVar[str] = "post_attention_layernorm"

    def __init__(self, config: DecoderConfig, loader: Loader, index: int) -> None:
        at = f"{self.layers_name}.{index}"
        hidden, eps, kind = config.hidden_size, config.norm_eps, config.norm
        self.scale = config.residual_scale
        self.input_norm = loader.norm(f"{at}.{self.input_norm_name}", hidden, eps, kind)
        self.attention = self.load_attention(config, loader, index, at)
        self.post_norm = loader.norm(f"{at}.{self.post_norm_name}", hidden, eps, kind)
        self.mlp = self.load_mlp(config, loader, index, at)

    def load_attention(
        self, config: DecoderConfig, loader: Loader, index: int, at: str
    ) -> Attention | LatentAttention:
        """The attention of layer `index`, whose names begin with `at`."""
        attention = Attention.load(config, loader, index, f"{at}.self_attn")
        if self.head_norms:
            attention.load_head_norms(config, loader, f"{at}.self_attn")
        return attention

    def load_mlp(
        self, config: DecoderConfig, loader: Loader, index: int, at: str
    ) -> GatedMLP | MLP | Experts:
        """The MLP of layer `index`, whose names begin with `at`."""
        return GatedMLP.load(config, loader, f"{at}.mlp")

    def __call__(self, x: Array, step: Step) -> Array:
        h = self.attention(x, step, norm=self.input_norm, residual=x, scale=self.scale)
        return self.mlp(h, step, norm=self.post_norm, residual=h, scale=self.scale)


class ExpertLayer(PreNormLayer):
    """The shared layer with experts for its MLP, but in layers that the config says are dense."""

    mlp_name: ClassVar[str] = "mlp"
    dense_name: ClassVar[str | None] = None
    """Of the MLP in dense layers, where it is another."""
    expert_names: ClassVar[ExpertNames] = ExpertNames()

    def load_mlp(
        self, config: DecoderConfig, loader: Loader, index: int, at: str
    ) -> GatedMLP | MLP | Experts:
        experts = config.experts
        if experts is None or not experts.layers[index]:
            return GatedMLP.load(config, loader, f"{at}.{self.dense_name or self.mlp_name}")
        return Experts.load(config, experts, loader, f"{at}.{self.mlp_name}", self.expert_names)


class NormNames(NamedTuple):
    """A family's names for the norms of a layer; None where it has no norm in that place."""

    before_attention: str | None
    after_attention: str
    before_mlp: str | None
    after_mlp: str


class PostNormLayer(Layer):
    """One layer with norms on what attention and MLP add; weights under `model.layers.{index}`."""

    attention_type: ClassVar[type[Attention]] = Attention
    head_norms: ClassVar[bool] = False
    norm_names: ClassVar[NormNames]

    def __init__(self, config: DecoderConfig, loader: Loader, index: int) -> None:
        at, names = f"model.layers.{index}", self.norm_names

        def norm(name: str) -> Norm:
            return loader.norm(f"{at}.{name}", config.hidden_size, config.norm_eps)

        self.before_attention = norm(names.before_attention) if names.before_attention else None
        self.after_attention = norm(names.after_attention)
        self.before_mlp = norm(names.before_mlp) if names.before_mlp else None
        self.after_mlp = norm(names.after_mlp)
        self.attention = self.attention_type.load(config, loader, index, f"{at}.self_attn")
        if self.head_norms:
            self.attention.load_head_norms(config, loader, f"{at}.self_attn")
        self.mlp = GatedMLP.load(config, loader, f"{at}.mlp")

    def __call__(self, x: Array, step: Step) -> Array:
        attended = self.attention(x, step, norm=self.before_attention)
        h = step.ops.norm(attended, self.after_attention, residual=x)
        inner = self.mlp(h, step, norm=self.before_mlp)
        return step.ops.norm(inner, self.after_mlp, residual=h)
