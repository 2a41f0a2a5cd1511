"""How many bytes a matrix takes in the layout of the CPU kernels, from its shape alone.

docs/kernels.md has the layouts. Memory is planned with it before a weight is read.
"""

from __future__ import annotations

from headrace.weights.codecs import F8_E4M3, Codec

LANES = 16
"""Rows of a panel; the last panel is padded."""

TILE = 32
"""Values that are summed together; rows of floats are padded to whole tiles."""

RUN, _SCALE_BYTES = 128, 4
"""Values of a row of F8_E4M3 that share a scale, which is float32."""

_BLOCK_BYTES = {
    "Q3_K": 1824, "Q4_K": 2368, "Q5_K": 2880, "IQ4_XS": 2208, "TQ1_0": 1056, "IQ3_S": 1824,
    "IQ1_M": 928,
}  # fmt: skip
"""Of a block of 16 rows, in the kinds whose scales or digits are unpacked; in all others it is as
stored."""


def packed_bytes(codec: Codec, rows: int, width: int) -> int:
    """Bytes of a matrix (rows, width) of `codec` once it is packed."""
    panels = -(-rows // LANES)
    if codec is F8_E4M3:
        padded = -(-width // TILE) * TILE
        return panels * LANES * (padded + -(-padded // RUN) * _SCALE_BYTES)
    if codec.block_elements == 1:
        return panels * LANES * -(-width // TILE) * TILE * codec.block_bytes
    block_bytes = _BLOCK_BYTES.get(codec.name, LANES * codec.block_bytes)
    return panels * (width // codec.block_elements) * block_bytes
