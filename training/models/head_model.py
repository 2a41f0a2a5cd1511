"""An EAGLE-3 head in plain PyTorch, with the tensor names of `speculators`.

Of token t, whose features the base computed, and token t + 1, it guesses t + 2 (arXiv 2503.01840):

    s = fc(features of t)
    x = s + attention(norm(embedding of t + 1), norm(s));  y = x + mlp(norm(x))
    logits of t + 2 = lm_head(norm(y)), over the commonest tokens only

Where the base has not been yet, y of the place before stands for s. So it is trained to go on from
what it says itself: place by place over the same text, a place at depth n attends to what it was at
depth 0 up to n places back, and to itself at each depth since.

Shapes: B sequences, T positions, D hidden, H query heads, E head width, V tokens it knows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from training.models.config import ModelConfig
from training.models.head_config import HeadConfig
from training.models.model import FeedForward, LanguageModel, RMSNorm, rope_table, rotate


class DeepAttention(nn.Module):
    """Attention over pairs of an embedding and a state, at one depth after another."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.n_shared = config.num_attention_heads // config.num_key_value_heads
        width = 2 * config.hidden_size
        q_size = config.num_attention_heads * config.head_dim
        kv_size = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(width, q_size, bias=False)
        self.k_proj = nn.Linear(width, kv_size, bias=False)
        self.v_proj = nn.Linear(width, kv_size, bias=False)
        self.o_proj = nn.Linear(q_size, config.hidden_size, bias=False)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, kept: list[tuple[Tensor, Tensor]]
    ) -> Tensor:
        """x: [B, T, 2 D] at depth len(kept), whose K and V are added to `kept`."""
        batch, length, _ = x.shape

        def heads(projected: Tensor) -> Tensor:
            return projected.view(batch, length, -1, self.head_dim).transpose(1, 2)

        depth = len(kept)
        q = rotate(heads(self.q_proj(x)), cos, sin) * self.head_dim**-0.5
        k, v = rotate(heads(self.k_proj(x)), cos, sin), heads(self.v_proj(x))
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


class HeadLayer(nn.Module):
    """Attention over the pair, then feed-forward, each added to the state."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = DeepAttention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = FeedForward(config)

    def forward(
        self,
        tokens: Tensor,
        state: Tensor,
        cos: Tensor,
        sin: Tensor,
        kept: list[tuple[Tensor, Tensor]],
    ) -> Tensor:
        joined = torch.cat((self.input_layernorm(tokens), self.hidden_norm(state)), dim=-1)
        x = state + self.self_attn(joined, cos, sin, kept)
        mixed: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return mixed


class HeadDecoder(nn.Module):
    """Features and tokens to what the head's output is made of."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: HeadConfig, base: ModelConfig) -> None:
        super().__init__()
        layer = config.layer(base)
        width = len(config.feature_layers) * layer.hidden_size
        self.fc = nn.Linear(width, layer.hidden_size, bias=False)
        self.layers = nn.ModuleList([HeadLayer(layer)])
        self.norm = RMSNorm(layer.hidden_size, layer.rms_norm_eps)
        cos, sin = rope_table(layer.max_position_embeddings, layer.head_dim, layer.rope_theta)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)


class Head(nn.Module):
    """An EAGLE-3 head of `base`, which knows the tokens `token_ids` of it, in ascending order."""

    def __init__(self, config: HeadConfig, base: LanguageModel, token_ids: Sequence[int]) -> None:
        super().__init__()
        if len(token_ids) != config.vocab_size or list(token_ids) != sorted(set(token_ids)):
            raise ValueError(
                f"token_ids are {len(token_ids)}: {config.vocab_size} in ascending order are wanted"
            )
        self.config = config
        self.model = HeadDecoder(config, base.config)
        self.lm_head = nn.Linear(base.config.hidden_size, config.vocab_size, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2 and name != "lm_head.weight":
                nn.init.normal_(parameter, std=0.02)
        with torch.no_grad():
            self.lm_head.weight.copy_(base.model.embed_tokens.weight[list(token_ids)])

    def forward(self, embedded: Tensor, features: Tensor, depths: int) -> list[Tensor]:
        """Logits [B, T, V] at each depth.

        embedded: [B, T, D], of the token after each place; features: [B, T, 3 D], of the place. At
        depth n, entry i is what the base's features of i - n say of token i + 2.
        """
        model = self.model
        cos, sin = model.cos[: embedded.shape[1]], model.sin[: embedded.shape[1]]
        state = model.fc(features)
        kept: list[tuple[Tensor, Tensor]] = []
        found = []
        for depth in range(depths):
            if depth:
                state = moved(state, 1, dim=1)
            state = model.layers[0](embedded, state, cos, sin, kept)
            found.append(self.lm_head(model.norm(state)))
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
    return torch.cat([seen[index] for index in layers], dim=-1), decoder.norm(x)
