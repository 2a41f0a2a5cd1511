"""Rounding of what meets weights, as the kind of these demands; docs/kernels.md says which."""

from __future__ import annotations

import torch

from headrace.ops.shared import values_of_a_scale

FLOATS = frozenset({"F32", "F16", "BF16", "F8_E4M3", "NF4"})
"""Kinds of floats; what meets any other is quantised."""
BF16_ROUNDED = frozenset({"BF16", "F8_E4M3"})
"""Those whose operands are rounded to bfloat16."""


def round_bf16(x: torch.Tensor) -> torch.Tensor:
    """The nearest bfloat16 of each value, ties to even, as float32."""
    return x.bfloat16().float()


def quotient(x: float | torch.Tensor, y: float | torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """x / y, rounded once, on the device of `like`. Of a number and a tensor PyTorch takes the
    reciprocal of one times the other, which is rounded twice: a tensor by a number on a device,
    a number by a tensor everywhere."""
    x, y = (
        each if isinstance(each, torch.Tensor) else torch.full((), each, device=like.device)
        for each in (x, y)
    )
    return x / y


def quantised(x: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """d f32[n, k / size] and q f32[n, k] of every `size` values of f32[n, k]: d = amax / 127,
    q = nearest(x * (127 / amax)), whole numbers.

    Both are 0 where amax is, or so small that 127 / amax overflows. What is not finite makes d of
    its block, and so the result, not finite.
    """
    blocks = x.unflatten(1, (x.shape[1] // size, size))
    most = blocks.abs().amax(dim=2)
    inverse = quotient(127.0, most, most)
    usable = inverse.isfinite() | most.isnan()
    scales = torch.where(usable, quotient(most, 127.0, most), 0.0)
    numbers = (blocks * torch.where(usable, inverse, 0.0)[..., None]).round()
    return scales, numbers.flatten(1)


def round_quantised(x: torch.Tensor, size: int) -> torch.Tensor:
    """d * q of every `size` values of f32[n, k]; see `quantised`."""
    scales, numbers = quantised(x, size)
    return (scales[..., None] * numbers.unflatten(1, (-1, size))).flatten(1)


def operand(x: torch.Tensor, codec: str) -> torch.Tensor:
    """f32[n, k] as weights of this kind see it."""
    if codec in BF16_ROUNDED:
        return round_bf16(x)
    if codec in FLOATS:
        return x
    return round_quantised(x, values_of_a_scale(codec, x.shape[1]))
