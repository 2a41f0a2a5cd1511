"""Kinds of folders and plain numbers: F32, F16, BF16, F8_E4M3, NF4, and those of 4 and 8 bits with
float32 scales; see `floats`, `float8`, `normal_float`, `four_bits` and `eight_bits` in
`headrace.weights.codecs`.
"""

from __future__ import annotations

import torch

from headrace.ops.torch.decoders.blocks import Blocks, Bytes, Floats, nibbles, scaled, split
from headrace.ops.torch.decoders.tables import e2m1, looked_up
from headrace.weights.codecs import NF4_NUMBERS
from headrace.weights.codecs.float8 import VALUES
from headrace.weights.codecs.tables import E4M3_HALVED


def _f32(blocks: Blocks) -> Floats:
    return blocks.floats("value")


def _f16(blocks: Blocks) -> Floats:
    return blocks.halves("value")


def _bf16(blocks: Blocks) -> Floats:
    return blocks.bytes("bits").contiguous().view(torch.bfloat16).float()


def _f8_e4m3(blocks: Blocks) -> Floats:
    return looked_up(VALUES, blocks.bytes("code"))


def _nf4(blocks: Blocks) -> Floats:
    return looked_up(NF4_NUMBERS, split(blocks.bytes("qs"), 4, 8) & 15) * blocks.floats("d")


def _codes(blocks: Blocks) -> Bytes:
    """uint8[n, values] in the order of k."""
    packed = blocks.bytes("qs")
    return nibbles(packed.reshape(len(packed), -1, 16)).reshape(len(packed), -1)


def _four_signed(blocks: Blocks) -> Floats:
    return blocks.floats("d") * (_codes(blocks).float() - 8)


def _four_unsigned(blocks: Blocks) -> Floats:
    d = blocks.floats("d")
    return d * _codes(blocks) - d * blocks.bytes("z")


def _e2m1(blocks: Blocks) -> Floats:
    return scaled(
        blocks.floats("d") * looked_up(E4M3_HALVED, blocks.bytes("e")), e2m1(_codes(blocks))
    )


def _eight_signed(blocks: Blocks) -> Floats:
    return blocks.floats("d") * (blocks.bytes("qs").float() - 128)


def _eight_unsigned(blocks: Blocks) -> Floats:
    d = blocks.floats("d")
    return d * blocks.bytes("qs") - d * blocks.bytes("z")


FOLDERS = {
    "F32": _f32,
    "F16": _f16,
    "BF16": _bf16,
    "F8_E4M3": _f8_e4m3,
    "NF4": _nf4,
    "I4_32": _four_signed,
    "I4_128": _four_signed,
    "U4_32": _four_unsigned,
    "U4_128": _four_unsigned,
    "E2M1_64": _e2m1,
    "E2M1_128": _e2m1,
    "I8_32": _eight_signed,
    "I8_128": _eight_signed,
    "U8_32": _eight_unsigned,
    "U8_128": _eight_unsigned,
    "W8A8_32": _eight_signed,
    "W8A8_128": _eight_signed,
    "W4A8_32": _four_signed,
    "W4A8_128": _four_signed,
}
"""By name."""
