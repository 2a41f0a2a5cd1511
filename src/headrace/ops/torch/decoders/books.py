"""Kinds whose runs are points of a code book: IQ1, IQ2 and IQ3; see
`headrace.weights.codecs.books`.
"""

from __future__ import annotations

import torch

from headrace.ops.torch.decoders.blocks import Blocks, Floats, one_bits, scaled, split, words
from headrace.ops.torch.decoders.tables import looked_up
from headrace.weights.codecs.books import (
    IQ1_POINTS,
    IQ2_S_POINTS,
    IQ2_XS_POINTS,
    IQ2_XXS_POINTS,
    IQ3_S_POINTS,
    IQ3_XXS_POINTS,
    SIGNS,
)


def _odd(numbers: torch.Tensor) -> Floats:
    """2 s + 1 of small whole numbers s."""
    return numbers.float() * 2 + 1


def _scales_of(blocks: Blocks) -> Floats:
    """2 s + 1 of the halves of the bytes of a field `scales`."""
    return _odd(split(blocks.bytes("scales"), 4, 8) & 15)


def _signs_of(signs: torch.Tensor) -> torch.Tensor:
    """uint8[n, 32]: the sign bits of 32 runs of words int64[n, 8], seven bits a run."""
    sevens = torch.arange(0, 28, 7, device=signs.device)
    return _eight((signs[..., None] >> sevens).reshape(len(signs), 32) & 127)


def _eight(sevens: torch.Tensor) -> torch.Tensor:
    """Sign bits of eight values of those of seven: the number of negative ones is even."""
    return torch.from_numpy(SIGNS).to(sevens.device)[sevens.long()]


def _signed(points: Floats, signs: torch.Tensor) -> Floats:
    """Points of n blocks with signs uint8[n, 32], a bit for each value from the lowest on."""
    values = points.reshape(len(signs), -1)
    return torch.where(one_bits(signs).bool(), -values, values)


def _high(blocks: Blocks, step: int, mask: int) -> torch.Tensor:
    """What stands above the eight low bits of indices, in the field `qh`."""
    return (split(blocks.bytes("qh"), step, 8) & mask).int() << 8


def _iq2_xxs(blocks: Blocks) -> Floats:
    groups = blocks.bytes("groups").reshape(len(blocks), 8, 8)
    signs = words(groups[..., 4:], 4)[..., 0]
    scales = blocks.halves("d") * _odd(signs >> 28) * 0.125
    return scaled(scales, _signed(looked_up(IQ2_XXS_POINTS, groups[..., :4]), _signs_of(signs)))


def _iq2_xs(blocks: Blocks) -> Floats:
    codes = blocks.short_words("qs")
    points = _signed(looked_up(IQ2_XS_POINTS, codes & 511), _eight(codes >> 9))
    return scaled(blocks.halves("d") * _scales_of(blocks) * 0.125, points)


def _iq2_s(blocks: Blocks) -> Floats:
    codes = blocks.bytes("qs").int() | _high(blocks, 2, 3)
    points = _signed(looked_up(IQ2_S_POINTS, codes), blocks.bytes("signs"))
    return scaled(blocks.halves("d") * _scales_of(blocks) * 0.125, points)


def _iq3_xxs(blocks: Blocks) -> Floats:
    signs = blocks.words("signs")
    scales = blocks.halves("d") * _odd(signs >> 28) * 0.25
    points = looked_up(IQ3_XXS_POINTS, blocks.bytes("qs"))
    return scaled(scales, _signed(points, _signs_of(signs)))


def _iq3_s(blocks: Blocks) -> Floats:
    codes = blocks.bytes("qs").int() | _high(blocks, 1, 1)
    points = _signed(looked_up(IQ3_S_POINTS, codes), blocks.bytes("signs"))
    return scaled(blocks.halves("d") * _scales_of(blocks), points)


def _shifted(points: Floats, down: torch.Tensor) -> Floats:
    """Points [n, runs, ...] plus 1/8, or less that where `down` [n, runs] is not 0."""
    shift = torch.where(down != 0, -0.125, 0.125)
    return points.reshape(*down.shape, -1) + shift[..., None]


def _iq1_s(blocks: Blocks) -> Floats:
    n, packed = len(blocks), blocks.short_words("qh")
    high = _threes(packed, 4).reshape(n, 32)
    points = looked_up(IQ1_POINTS, blocks.bytes("qs").int() | high << 8)
    scales = blocks.halves("d") * _odd((packed >> 12) & 7)
    return scaled(scales, _shifted(points, packed >> 15))


def _iq1_m(blocks: Blocks) -> Floats:
    n, packed = len(blocks), blocks.short_words("scales")
    # The F16 is in the four high bits of the words, its lowest four in the first.
    shifts = torch.arange(0, 16, 4, device=packed.device, dtype=torch.int32)
    bits = ((packed >> 12) << shifts).sum(dim=1, keepdim=True)
    low_bytes = torch.cat([bits & 255, bits >> 8], dim=1).to(torch.uint8)
    d = low_bytes.view(torch.float16).float()
    high = split(blocks.bytes("qh"), 4, 8).int()
    codes = blocks.bytes("qs").int() | (high & 7) << 8
    scales = d * _odd(_threes(packed, 4).reshape(n, 16))
    return scaled(scales, _shifted(looked_up(IQ1_POINTS, codes), high & 8))


def _threes(packed: torch.Tensor, count: int) -> torch.Tensor:
    """int32[..., count]: the lowest parts of three bits of words."""
    shifts = torch.arange(0, 3 * count, 3, device=packed.device, dtype=torch.int32)
    return (packed[..., None] >> shifts) & 7


BOOKS = {
    "IQ2_XXS": _iq2_xxs,
    "IQ2_XS": _iq2_xs,
    "IQ2_S": _iq2_s,
    "IQ3_XXS": _iq3_xxs,
    "IQ3_S": _iq3_s,
    "IQ1_S": _iq1_s,
    "IQ1_M": _iq1_m,
}
"""By name."""
