"""F8_E4M3: bytes that are floats of 8 bits, whose scales a file stores on their own.

A sign, four bits of exponent with a bias of 7, three of mantissa; an exponent of 0 is subnormal
(multiples of 2^-9), and of codes only 0x7f and 0xff are no numbers, namely NaN: the largest is 448.
`decode` gives these numbers, without a scale; a matrix of weights is a `ScaledTensor`, which has
them.

Sources: OCP 8-bit Floating Point Specification 1.0 (E4M3), the safetensors format (dtype F8_E4M3).
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from headrace.weights.codecs.codec import Blocks, Codec, Floats

VALUES = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)


def _decode(blocks: Blocks, out: Floats) -> None:
    out[:, 0] = VALUES[blocks["code"]]


F8_E4M3 = Codec("F8_E4M3", 1, np.dtype([("code", "u1")]), -1, _decode, safetensors_dtype="F8_E4M3")
