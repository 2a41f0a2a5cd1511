"""Operations on rows: norms, activations, rotation. Each row is computed from itself alone."""

from __future__ import annotations

import math

import torch

from headrace.ops.operands import Activation, Norm
from headrace.ops.shared import is_centred
from headrace.ops.torch.sums_and_products import tree_sum


def normed(x: torch.Tensor, norm: Norm) -> torch.Tensor:
    """The norm of the last axis of x, f32[..., width]."""
    width = x.shape[-1]
    if is_centred(norm):
        x = x - tree_sum(x)[..., None] / width
    mean = tree_sum(x * x)[..., None] / width
    result = x * torch.rsqrt(mean + norm.eps) * norm.weight
    return result if norm.bias is None else result + norm.bias


def activated(x: torch.Tensor, kind: Activation) -> torch.Tensor:
    """The activation of each value; ValueError for one that is unknown."""
    if kind == "silu":
        return x / (1 + torch.exp(-x))
    if kind == "gelu":
        # By the tail itself, so that nothing cancels where x is negative.
        return x * 0.5 * torch.special.erfc(x * -math.sqrt(0.5))
    if kind == "gelu_tanh":
        # The form by tanh, rewritten: 0.5 (1 + tanh y) is 1 / (1 + exp(-2 y)).
        inner = 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
        return x / (1 + torch.exp(-inner))
    if kind == "relu":
        return torch.where(x < 0, 0.0, x)
    if kind == "relu2":
        return torch.where(x < 0, 0.0, x).square()
    raise ValueError(
        f"activation {kind!r} is unknown; supported: silu, gelu, gelu_tanh, relu, relu2"
    )


def gated(gate: torch.Tensor, up: torch.Tensor, kind: Activation, limit: float) -> torch.Tensor:
    """act(gate) * up, cut at the limit where there is one.

    ValueError for a kind that is unknown, and for a limit that is negative or not finite.
    """
    if not 0 <= limit < math.inf:
        raise ValueError(f"limit {limit} is not in [0, inf)")
    if kind == "swiglu_clamped":
        if limit:
            raise ValueError("limit: swiglu_clamped has its own")
        gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
        return gate / (1 + torch.exp(-1.702 * gate)) * (up + 1)
    gate = activated(gate, kind)
    if limit:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * up


def rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """Rotate heads f32[N, heads, head_dim] in place by cos and sin f32[N, rotary_dim / 2]."""
    half = cos.shape[1]
    cos, sin = cos[:, None], sin[:, None]
    first, second = heads[..., :half], heads[..., half : 2 * half]
    turned = first * cos - second * sin
    heads[..., half : 2 * half] = second * cos + first * sin
    heads[..., :half] = turned
