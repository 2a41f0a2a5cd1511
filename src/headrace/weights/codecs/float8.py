"""F8_E4M3: bytes that are floats of 8 bits, whose scales a file stores on their own.

A sign, four bits of exponent with a bias of 7, three of mantissa; an exponent of 0 is subnormal
(multiples of 2^-9), and of codes only 0x7f and 0xff are no numbers, namely NaN: the largest is 448.
`decode` gives these numbers, without a scale; a matrix of weights is a `ScaledTensor`, which has
them.

Sources: OCP 8-bit Floating Point Specification 1.0 (E4M3), the safetensors format (dtype F8_E4M3).
"""

from __future__ import annotations

import numpy as np

from headrace.weights.codecs.codec import Blocks, Codec, Floats


def _values() -> Floats:
    """The number of every code."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    # A normal number has a leading one; a subnormal one has none, and the exponent 1.
    units = np.where(exponent > 0, 8 + mantissa, mantissa).astype(np.float32)
    values: Floats = np.ldexp(units, np.maximum(exponent, 1) - 10)
    values[code & 127 == 127] = np.nan
    values[128:] = -values[128:]
    return values


VALUES = _values()


def _decode(blocks: Blocks, out: Floats) -> None:
    out[:, 0] = VALUES[blocks["code"]]


F8_E4M3 = Codec("F8_E4M3", 1, np.dtype([("code", "u1")]), -1, _decode, safetensors_dtype="F8_E4M3")
