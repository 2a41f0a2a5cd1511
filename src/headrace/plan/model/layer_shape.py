"""The kinds of layers a model is made of: what each keeps per token or request, and its weights.

Sizes are counts of values; how many bytes a value takes is the business of whoever stores it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from headrace.models.visible import Visible

AttentionKind = Literal["mha", "gqa", "mqa", "mla"]
StateKind = Literal["linear", "state-space", "unknown"]


@dataclass(frozen=True)
class AttentionLayers:
    """Layers that keep keys and values of the tokens before.

    With latent attention (MLA) a layer keeps kv_lora_rank + rope_head_dim values a token, whatever
    the heads are.
    """

    count: int
    kind: AttentionKind
    heads: int
    kv_heads: int
    head_dim: int
    value_head_dim: int
    window_tokens: int | None = None
    """At most so many tokens are kept; None keeps all."""
    chunked: bool = False
    """Whether these are the tokens of a chunk, which are let go of when it ends."""
    shared: bool = False
    """Whether keys and values are read that an earlier layer keeps, so that these keep none."""
    q_lora_rank: int | None = None
    kv_lora_rank: int | None = None
    rope_head_dim: int | None = None
    parameters: int = 0
    """Parameters of one layer."""

    @property
    def visible(self) -> Visible:
        """The positions that a token sees."""
        return Visible(self.window_tokens or 0, self.chunked)

    @property
    def values_per_token(self) -> int:
        """Values one layer keeps for a token: keys and values, or the latent one."""
        return self.key_values_per_token + self.value_values_per_token

    @property
    def stored_heads(self) -> int:
        """Heads of keys; a latent cache is one."""
        return 1 if self.kind == "mla" else self.kv_heads

    @property
    def key_values_per_token(self) -> int:
        """Those of keys; all of a latent cache, which is not split."""
        if self.kind == "mla":
            return (self.kv_lora_rank or 0) + (self.rope_head_dim or 0)
        return self.kv_heads * self.head_dim

    @property
    def value_values_per_token(self) -> int:
        """Those of values; none of a latent cache."""
        return 0 if self.kind == "mla" else self.kv_heads * self.value_head_dim

    def flops_per_pair(self) -> int:
        """Operations of one layer for one query token and one cached token: scores and sums."""
        if self.kind == "mla":
            rank, rope = self.kv_lora_rank or 0, self.rope_head_dim or 0
            return 2 * self.heads * (2 * rank + rope)
        return 2 * self.heads * (self.head_dim + self.value_head_dim)


@dataclass(frozen=True)
class StateLayers:
    """Layers that keep a state of constant size for each request."""

    count: int
    kind: StateKind
    state_values: int
    """Values of one layer, kept as 32-bit numbers."""
    conv_values: int
    """Inputs of its short convolution that are kept, as 16-bit ones. kind "unknown": the size is
    not stated, and is 0."""
    parameters: int = 0
    """Parameters of one layer."""


@dataclass(frozen=True)
class DenseLayers:
    """Dense feed-forward layers."""

    count: int
    width: int
    matrices: int = 3
    """Of each layer: 3 gated, 2 plain."""
    parameters: int = 0


@dataclass(frozen=True)
class ExpertLayers:
    """Layers with a mixture of experts."""

    count: int
    experts: int
    experts_per_token: int
    shared_experts: int
    expert_width: int
    expert_parameters: int
    """Parameters of one routed expert."""
    parameters: int = 0
    """Parameters of one layer without its routed experts (router and shared experts), which every
    token meets."""


LayerKind: TypeAlias = AttentionLayers | StateLayers | DenseLayers | ExpertLayers
