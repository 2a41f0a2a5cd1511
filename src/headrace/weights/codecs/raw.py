"""Bytes that are numbers of no kind: parts of another kind, which a file stores on their own.

No tensor of a model is of it: whoever opens a file puts such parts together, or refuses them.

Source: the safetensors format (dtype U8).
"""

from __future__ import annotations

import numpy as np

from headrace.weights.codecs.codec import Blocks, Codec, Floats


def _decode(blocks: Blocks, out: Floats) -> None:
    out[:, 0] = blocks["byte"]


BYTES = Codec("U8", 1, np.dtype([("byte", "u1")]), -1, _decode, safetensors_dtype="U8")
