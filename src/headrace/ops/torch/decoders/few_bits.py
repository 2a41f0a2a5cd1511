"""Kinds of one bit, two, or three levels: Q1_0, Q2_0, TQ1_0, TQ2_0; see
`headrace.weights.codecs.few_bits`.
"""

from __future__ import annotations

import torch

from headrace.ops.torch.decoders.blocks import Blocks, Bytes, Floats, one_bits, split, two_bits


def _q1_0(blocks: Blocks) -> Floats:
    return blocks.halves("d") * (2 * one_bits(blocks.bytes("qs")).float() - 1)


def _q2_0(blocks: Blocks) -> Floats:
    return blocks.halves("d") * ((split(blocks.bytes("qs"), 2, 8) & 3).float() - 1)


def _tq2_0(blocks: Blocks) -> Floats:
    codes = two_bits(blocks.bytes("qs")).reshape(len(blocks), 256)
    return blocks.halves("d") * (codes.float() - 1)


def _digits(packed: Bytes, count: int) -> torch.Tensor:
    """int32[n, count * bytes] of uint8[n, bytes]: the first digit of each byte, then the second."""
    powers = 3 ** torch.arange(count, device=packed.device, dtype=torch.int32)
    fractions = (packed[:, None, :].int() * powers[:, None]) & 255
    return ((fractions * 3) >> 8).reshape(len(packed), -1)


def _tq1_0(blocks: Blocks) -> Floats:
    packed = blocks.bytes("qs")
    parts = _digits(packed[:, :32], 5), _digits(packed[:, 32:], 5), _digits(blocks.bytes("qh"), 4)
    return blocks.halves("d") * (torch.cat(parts, dim=1).float() - 1)


FEW_BITS = {"Q1_0": _q1_0, "Q2_0": _q2_0, "TQ1_0": _tq1_0, "TQ2_0": _tq2_0}
"""By name."""
