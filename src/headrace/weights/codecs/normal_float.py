"""NF4: codes of 4 bits for numbers of a table of 16, with a float32 scale for each 64.

As the kinds of `four_bits` it is in no registry: folders of bitsandbytes store codes and scales in
tensors of their own (`headrace.weights.tensors.normal_float`). A value is number * scale, rounded
once. In a block the first of two neighbours is in the low half of a byte.

Source: bitsandbytes functional.py (get_4bit_type, dequantize_4bit).
"""

from __future__ import annotations

import numpy as np

from headrace.weights.codecs.codec import Blocks, Codec, Floats

BLOCK = 64
"""Values that share a scale."""

NF4_NUMBERS = np.array(
    [
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
        -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
        0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ],
    np.float32,
)  # fmt: skip
"""By code: quantiles of a normal distribution, with an exact zero."""


def _decode(blocks: Blocks, out: Floats) -> None:
    packed, d = blocks["qs"], blocks["d"][:, None]
    np.multiply(NF4_NUMBERS[packed & 15], d, out=out[:, ::2])
    np.multiply(NF4_NUMBERS[packed >> 4], d, out=out[:, 1::2])


NF4 = Codec("NF4", BLOCK, np.dtype([("d", "<f4"), ("qs", "u1", (BLOCK // 2,))]), -1, _decode)
