"""Bytes and words that are numbers of no kind: parts of another kind, which a file stores on their
own.

No tensor of a model is of it: whoever opens a file puts such parts together, or refuses them.

Source: the safetensors format (dtypes U8, I8, I32, I64).
"""

from __future__ import annotations

import numpy as np

from headrace.weights.codecs.codec import Blocks, Codec, Floats


def _decode(blocks: Blocks, out: Floats) -> None:
    out[:, 0] = blocks["value"]


def _codec(name: str, kind: str) -> Codec:
    return Codec(name, 1, np.dtype([("value", kind)]), -1, _decode, safetensors_dtype=name)


BYTES = _codec("U8", "u1")
SIGNED_BYTES = _codec("I8", "i1")
WORDS = _codec("I32", "<i4")
LONG_WORDS = _codec("I64", "<i8")
RAW = {codec.name: codec for codec in (BYTES, SIGNED_BYTES, WORDS, LONG_WORDS)}
"""By dtype."""
