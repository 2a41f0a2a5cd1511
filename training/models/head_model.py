"""What the heads of the base have in common, in plain PyTorch: the depths of a chain of guesses.

Of token t, whose features the base computed, and token t + 1, a head guesses t + 2:

    s = begin(features of t)
    logits of t + 2, s of t + 1 = guess(embedding of t + 1, s)     over the commonest tokens only

Where the base has not been yet, what the place before gave stands for s. So a head is trained to go
on from what it says itself: place by place over the same text, a place at depth n attends to what
it was at depth 0 up to n places back, and to itself at each depth since.

Shapes: B sequences, T positions, D hidden, H query heads, E head width, V tokens it knows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from training.models.config import ModelConfig
from training.models.head_config import NORMED, HeadConfig
from training.models.model import LanguageModel, RMSNorm, rope_table, rotate

Kept = list[tuple[Tensor, Tensor]]
"""K and V of each depth so far, each [B, H, T, E]."""


class DeepAttention(nn.Module):
    """Attention over what a head knows of each place, at one depth after another."""

    def __init__(self, config: ModelConfig, width: int, *, head_norms: bool) -> None:
        """width: of its input. head_norms: whether each head of Q and K is normed, as the base's
        are."""
        super().__init__()
        self.head_dim = config.head_dim
        self.n_shared = config.num_attention_heads // config.num_key_value_heads
        q_size = config.num_attention_heads * config.head_dim
        kv_size = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(width, q_size, bias=False)
        self.k_proj = nn.Linear(width, kv_size, bias=False)
        self.v_proj = nn.Linear(width, kv_size, bias=False)
        self.o_proj = nn.Linear(q_size, config.hidden_size, bias=False)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps) if head_norms else None
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps) if head_norms else None

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, kept: Kept) -> Tensor:
        """x: [B, T, width] at depth len(kept), whose K and V are added to `kept`."""
        batch, length, _ = x.shape

        def heads(projected: Tensor) -> Tensor:
            return projected.view(batch, length, -1, self.head_dim).transpose(1, 2)

        depth = len(kept)
        q, k, v = heads(self.q_proj(x)), heads(self.k_proj(x)), heads(self.v_proj(x))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotate(q, cos, sin) * self.head_dim**-0.5, rotate(k, cos, sin)
        k, v = (part.repeat_interleave(self.n_shared, dim=1) for part in (k, v))
        kept.append((k.to(v.dtype), v))
        q = q.to(v.dtype)
        # What the base has been at: up to `depth` places back.
        first_k, first_v = kept[0]
        place = torch.arange(length)
        visible = place[:, None] - depth >= place[None, :]
        scores = [torch.where(visible, q @ first_k.transpose(-1, -2), float("-inf"))]
        # And the chain since: depth d of this one was at the place `depth - d` back.
        values = []
        for own_depth in range(1, depth + 1):
            back = depth - own_depth
            own_k, own_v = (moved(part, back) for part in kept[own_depth])
            scores.append((q * own_k).sum(dim=-1, keepdim=True))
            values.append(own_v)
        shares = torch.cat(scores, dim=-1).float().softmax(dim=-1).to(v.dtype)
        mixed = shares[..., :length] @ first_v
        for at, own_v in enumerate(values):
            mixed = mixed + shares[..., length + at : length + at + 1] * own_v
        projected: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))
        return projected


class Head(nn.Module, ABC):
    """A head of `base` with one layer, which knows its tokens `token_ids`, in ascending order.

    A module's names are those of the tensors that its folder has.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, config: HeadConfig, base: LanguageModel, token_ids: Sequence[int]) -> None:
        super().__init__()
        if len(token_ids) != config.vocab_size or list(token_ids) != sorted(set(token_ids)):
            raise ValueError(
                f"token_ids are {len(token_ids)}: {config.vocab_size} in ascending order are wanted"
            )
        self.config = config
        layer = config.layer(base.config)
        cos, sin = rope_table(layer.max_position_embeddings, layer.head_dim, layer.rope_theta)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.build(layer, base)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
        with torch.no_grad():
            self.begin_as(base, base.model.embed_tokens.weight[list(token_ids)].detach())

    @abstractmethod
    def build(self, layer: ModelConfig, base: LanguageModel) -> None:
        """Make the modules."""

    @abstractmethod
    def begin_as(self, base: LanguageModel, rows: Tensor) -> None:
        """Take over what begins as the base's. rows: [V, D], of its output for the tokens."""

    @abstractmethod
    def begin(self, features: Tensor) -> Tensor:
        """The state [B, T, D] of places that the base has been at, of its features."""

    @abstractmethod
    def guess(
        self, tokens: Tensor, state: Tensor, cos: Tensor, sin: Tensor, kept: Kept
    ) -> tuple[Tensor, Tensor]:
        """Logits [B, T, V], and the states of the next places, of embeddings [B, T, D] and states
        at depth len(kept)."""

    def forward(self, embedded: Tensor, features: Tensor, depths: int) -> list[Tensor]:
        """Logits [B, T, V] at each depth.

        embedded: [B, T, D], of the token after each place; features: [B, T, layers * D], of the
        place. At depth n, entry i is what the base's features of i - n say of token i + 2.
        """
        cos, sin = self.cos[: embedded.shape[1]], self.sin[: embedded.shape[1]]
        state = self.begin(features)
        kept: Kept = []
        found = []
        for depth in range(depths):
            if depth:
                state = moved(state, 1, dim=1)
            logits, state = self.guess(embedded, state, cos, sin, kept)
            found.append(logits)
        return found


def moved(x: Tensor, places: int, dim: int = 2) -> Tensor:
    """x with what was at place i now at i + places, and zeros before."""
    if not places:
        return x
    length = x.shape[dim]
    zeros = torch.zeros_like(x.narrow(dim, 0, places))
    return torch.cat((zeros, x.narrow(dim, 0, length - places)), dim=dim)


def features_of(base: LanguageModel, ids: Tensor, layers: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Features [B, T, len(layers) * D] of each token, and the base's hidden states [B, T, D]
    behind its norm."""
    decoder = base.model
    x = decoder.embed_tokens(ids)
    cos, sin = decoder.cos[: ids.shape[1]], decoder.sin[: ids.shape[1]]
    seen = {0: x}
    for index, layer in enumerate(decoder.layers, 1):
        x = layer(x, cos, sin)
        seen[index] = x
    normed = seen[NORMED] = decoder.norm(x)
    return torch.cat([seen[index] for index in layers], dim=-1), normed
