"""Kinds of 256 values with scales in every 16 or 32: Q2_K to Q6_K; see
`headrace.weights.codecs.k_kinds`.
"""

from __future__ import annotations

import torch

from headrace.ops.torch.decoders.blocks import (
    Blocks,
    Bytes,
    Floats,
    bit_planes,
    nibbles,
    scaled,
    split,
    two_bits,
)


def _scales_and_minimums(packed: Bytes) -> tuple[Bytes, Bytes]:
    """Eight 6-bit scales and eight 6-bit minimums of 12 bytes."""
    first, second, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = torch.cat([first & 63, (rest & 15) | ((first >> 2) & 48)], dim=1)
    minimums = torch.cat([second & 63, (rest >> 4) | ((second >> 2) & 48)], dim=1)
    return scales, minimums


def _less(values: Floats, minimums: Floats) -> Floats:
    """Values float32[n, 256] less the minimum float32[n, groups] of their group."""
    n, groups = minimums.shape
    return (values.reshape(n, groups, -1) - minimums[..., None]).reshape(n, -1)


def _q2_k(blocks: Blocks) -> Floats:
    packed = blocks.bytes("scales")
    scale, minimum = blocks.halves("d") * (packed & 15), blocks.halves("dmin") * (packed >> 4)
    return _less(scaled(scale, two_bits(blocks.bytes("qs"))), minimum)


def _q3_k(blocks: Blocks) -> Floats:
    n, packed = len(blocks), blocks.bytes("scales")
    # Scale j: its 4 low bits are nibbles of bytes 0-7, its 2 high bits lie in bytes 8-11.
    high = (split(packed[:, 8:], 2, 8) & 3).reshape(n, 4, 4).transpose(1, 2).reshape(n, 16)
    six_bits = nibbles(packed[:, :8]) | (high << 4)
    scale = blocks.halves("d") * (six_bits.float() - 32)
    three_bits = two_bits(blocks.bytes("qs")).reshape(n, 8, 32) | (
        bit_planes(blocks.bytes("hmask")) << 2
    )
    return scaled(scale, three_bits.float() - 4)


def _affine(blocks: Blocks, quants: Bytes) -> Floats:
    scales, minimums = _scales_and_minimums(blocks.bytes("scales"))
    scale, minimum = blocks.halves("d") * scales, blocks.halves("dmin") * minimums
    return _less(scaled(scale, quants), minimum)


def _q4_k(blocks: Blocks) -> Floats:
    return _affine(blocks, nibbles(blocks.bytes("qs").reshape(len(blocks), 4, 32)))


def _q5_k(blocks: Blocks) -> Floats:
    n = len(blocks)
    low = nibbles(blocks.bytes("qs").reshape(n, 4, 32)).reshape(n, 8, 32)
    return _affine(blocks, low | (bit_planes(blocks.bytes("qh")) << 4))


def _q6_k(blocks: Blocks) -> Floats:
    n = len(blocks)
    low = nibbles(blocks.bytes("ql").reshape(n, 2, 64)).reshape(n, 8, 32)
    high = two_bits(blocks.bytes("qh")).reshape(n, 8, 32)
    scale = blocks.halves("d") * blocks.signed("scales")
    return scaled(scale, (low | (high << 4)).float() - 32)


K_KINDS = {"Q2_K": _q2_k, "Q3_K": _q3_k, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k}
"""By name."""
