"""Codecs of 4 bits in groups with a float32 scale: what quantised folders hold, laid out in blocks.

    I4_32, I4_128      a scale d, values d * (q - 8)
    U4_32, U4_128      a scale d and a zero point z of a byte, values d * (q - z)
    E2M1_64, E2M1_128  a scale d of all and one in E4M3 for each 16, values (d * scale) * number

No file is of these kinds: a folder stores numbers, scales and zero points in tensors of their own,
which `headrace.weights.tensors.grouped_tensor` puts together. So they are in no registry. The
scale is float32 as F16, BF16 and F32 are all exact in it; with one of F16 or BF16 d * q, d * z and
their difference are exact too. Codes of values 0-15 of 32 are the low halves of `qs`, those of
values 16-31 the high halves. The table of E2M1 holds doubled values and its scale is halved.

Sources: compressed-tensors compressors (pack_quantized, nvfp4), GPTQModel and AutoAWQ (what a value
is), OCP Microscaling Formats 1.0 (E2M1).
"""

from __future__ import annotations

import numpy as np

from headrace.weights.codecs.codec import Blocks, Bytes, Codec, Floats, nibbles
from headrace.weights.codecs.tables import E2M1_DOUBLED, E4M3_HALVED

GROUP = 16
"""Values of E2M1 that share a scale."""


def _codes(blocks: Blocks) -> Bytes:
    """[n, values] in the order of k."""
    packed = blocks["qs"]
    return nibbles(packed.reshape(len(packed), -1, 16)).reshape(len(packed), -1)


def _decode_signed(blocks: Blocks, out: Floats) -> None:
    np.multiply(blocks["d"][:, None], _codes(blocks).view(np.int8) - np.int8(8), out=out)


def _decode_unsigned(blocks: Blocks, out: Floats) -> None:
    d, z = blocks["d"][:, None], blocks["z"][:, None]
    np.multiply(d, _codes(blocks), out=out)
    np.subtract(out, d * z.astype(np.float32), out=out)


def _decode_e2m1(blocks: Blocks, out: Floats) -> None:
    n = len(blocks)
    scales = blocks["d"][:, None] * E4M3_HALVED[blocks["e"]]
    values = E2M1_DOUBLED[_codes(blocks)].reshape(n, -1, GROUP)
    np.multiply(scales[:, :, None], values, out=out.reshape(n, -1, GROUP))


def _codec(name: str, elements: int, fields: list[tuple[str, str]]) -> Codec:
    more: list[tuple[str, str, tuple[int]]] = [("qs", "u1", (elements // 2,))]
    if name.startswith("E2M1"):
        more.insert(0, ("e", "u1", (elements // GROUP,)))
    layout = np.dtype([*fields, *more])
    decode = {"I": _decode_signed, "U": _decode_unsigned, "E": _decode_e2m1}[name[0]]
    return Codec(name, elements, layout, -1, decode)


_SCALE = ("d", "<f4")
I4_32 = _codec("I4_32", 32, [_SCALE])
I4_128 = _codec("I4_128", 128, [_SCALE])
U4_32 = _codec("U4_32", 32, [_SCALE, ("z", "u1")])
U4_128 = _codec("U4_128", 128, [_SCALE, ("z", "u1")])
E2M1_64 = _codec("E2M1_64", 64, [_SCALE])
E2M1_128 = _codec("E2M1_128", 128, [_SCALE])

GROUPED = {codec.name: codec for codec in (I4_32, I4_128, U4_32, U4_128, E2M1_64, E2M1_128)}
"""By name."""
