"""Kinds of 32 values on a line: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.

See `headrace.weights.codecs.linear`.
"""

from __future__ import annotations

from headrace.ops.torch.decoders.blocks import Blocks, Bytes, Floats, nibbles, one_bits


def _five_bits(blocks: Blocks) -> Bytes:
    return nibbles(blocks.bytes("qs")) | (one_bits(blocks.bytes("qh")) << 4)


def _q4_0(blocks: Blocks) -> Floats:
    return blocks.halves("d") * (nibbles(blocks.bytes("qs")).float() - 8)


def _q4_1(blocks: Blocks) -> Floats:
    return blocks.halves("d") * nibbles(blocks.bytes("qs")) + blocks.halves("m")


def _q5_0(blocks: Blocks) -> Floats:
    return blocks.halves("d") * (_five_bits(blocks).float() - 16)


def _q5_1(blocks: Blocks) -> Floats:
    return blocks.halves("d") * _five_bits(blocks) + blocks.halves("m")


def _q8_0(blocks: Blocks) -> Floats:
    return blocks.signed("qs") * blocks.halves("d")


LINEAR = {"Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q8_0": _q8_0}
"""By name."""
