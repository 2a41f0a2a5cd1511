"""The model in plain PyTorch: a small Qwen3, with Hugging Face's tensor names.

Pre-norm blocks of grouped-query attention with rotary positions and a SwiGLU feed-forward, and
one matrix shared by the embedding and the output. Queries and keys are normed before they are
turned, which keeps attention scores in bounds at high learning rates. The module tree mirrors
Hugging Face's Qwen3ForCausalLM, so that `state_dict()` is a checkpoint that other software reads.
Shapes: B sequences, T positions, D hidden, H query heads, K key-value heads, E head width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.models.config import ModelConfig


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last axis."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def rope_table(n_positions: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """cos and sin, each [T, E/2]: position t turns pair i by t * theta^(-2i/E) radians."""
    frequency = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angle = torch.outer(torch.arange(n_positions, dtype=torch.float64), frequency)
    return angle.cos().float(), angle.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn [B, heads, T, E] by its positions; a pair is (i, i + E/2), which is "rotate half"."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


# Queries per piece of attention: a piece skips the keys after it, and its scores fit a cache.
QUERY_BLOCK = 256


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(E), causal) v for [B, heads, T, E], a block of queries at a time.

    Plain products, because on a CPU they train 1.25 times as fast in bfloat16 as PyTorch's fused
    attention (2 cores, AVX-512, 512 positions); tests compare it with the fused one, which is
    what a GPU uses.
    """
    if q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    length = q.shape[-2]
    q = q * q.shape[-1] ** -0.5
    mixed = []
    for first in range(0, length, QUERY_BLOCK):
        last = min(first + QUERY_BLOCK, length)
        scores = q[..., first:last, :] @ k[..., :last, :].transpose(-1, -2)
        visible = torch.arange(first, last)[:, None] >= torch.arange(last)[None, :]
        shares = torch.where(visible, scores, float("-inf")).float().softmax(dim=-1)
        mixed.append(shares.to(v.dtype) @ v[..., :last, :])
    return torch.cat(mixed, dim=-2)


class Attention(nn.Module):
    """Causal attention in which H/K query heads share each key-value head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.n_shared = config.num_attention_heads // config.num_key_value_heads
        q_size = config.num_attention_heads * config.head_dim
        kv_size = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, q_size, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, kv_size, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, kv_size, bias=False)
        self.o_proj = nn.Linear(q_size, config.hidden_size, bias=False)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape

        def heads(projected: Tensor) -> Tensor:
            return projected.view(batch, length, -1, self.head_dim).transpose(1, 2)

        q = rotate(self.q_norm(heads(self.q_proj(x))), cos, sin)
        k = rotate(self.k_norm(heads(self.k_proj(x))), cos, sin)
        v = heads(self.v_proj(x))
        k, v = (part.repeat_interleave(self.n_shared, dim=1) for part in (k, v))
        mixed = causal_attention(q, k.to(v.dtype), v)
        projected: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))
        return projected


class FeedForward(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        projected: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return projected


class Layer(nn.Module):
    """Attention, then feed-forward, each on a normalised copy and added back."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        mixed: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return mixed


class Decoder(nn.Module):
    """Token ids [B, T] to hidden states [B, T, D]."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        cos, sin = rope_table(config.max_position_embeddings, config.head_dim, config.rope_theta)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed_tokens(ids)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, cos, sin)
        normed: Tensor = self.norm(x)
        return normed


class LanguageModel(nn.Module):
    """The decoder and its tied output: logits are hidden states times the embedding."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        # GPT-2's rule: what writes into the residual stream starts smaller, by its 2L additions.
        residual_std = 0.02 / (2 * config.num_hidden_layers) ** 0.5
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                into_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, std=residual_std if into_residual else 0.02)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits [B, T, vocabulary] for token ids [B, T]."""
        return F.linear(self.model(ids), self.model.embed_tokens.weight)

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy in nats of `targets` [B, T] given `ids` [B, T].

        Targets of -100 cost nothing and count in the mean, so that every other token weighs the
        same, whatever is beside it.
        """
        logits = self(ids).flatten(0, 1).float()
        return F.cross_entropy(logits, targets.flatten(), reduction="sum") / targets.numel()
