"""Kinds whose 4-bit codes are looked up: IQ4_NL, IQ4_XS, MXFP4, NVFP4; see
`headrace.weights.codecs.tables`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from headrace.ops.torch.decoders.blocks import Blocks, Bytes, Floats, nibbles, scaled, split
from headrace.weights.codecs.search import NON_LINEAR
from headrace.weights.codecs.tables import E2M1_DOUBLED, E4M3_HALVED, E8M0_HALVED


def looked_up(table: npt.NDArray[np.float32], codes: torch.Tensor) -> Floats:
    """The numbers of a table float32[codes] by code, on the device of the codes."""
    return torch.from_numpy(table).to(codes.device)[codes.long()]


def _iq4_nl(blocks: Blocks) -> Floats:
    return blocks.halves("d") * looked_up(_LEVELS, nibbles(blocks.bytes("qs")))


def _iq4_xs(blocks: Blocks) -> Floats:
    low = split(blocks.bytes("scales_l"), 4, 8) & 15
    high = split(blocks.short_words("scales_h"), 2, 16) & 3
    scale = blocks.halves("d") * ((low.int() | (high << 4)).float() - 32)
    codes = nibbles(blocks.bytes("qs").reshape(len(blocks), 8, 16))
    return scaled(scale, looked_up(_LEVELS, codes))


def _mxfp4(blocks: Blocks) -> Floats:
    return looked_up(E8M0_HALVED, blocks.bytes("e")) * e2m1(nibbles(blocks.bytes("qs")))


def _nvfp4(blocks: Blocks) -> Floats:
    codes = nibbles(blocks.bytes("qs").reshape(len(blocks), 4, 8))
    return scaled(looked_up(E4M3_HALVED, blocks.bytes("d")), e2m1(codes))


def e2m1(codes: Bytes) -> Floats:
    """Numbers of E2M1, doubled, by code."""
    return looked_up(E2M1_DOUBLED, codes)


_LEVELS = NON_LINEAR.astype(np.float32)

TABLES = {"IQ4_NL": _iq4_nl, "IQ4_XS": _iq4_xs, "MXFP4": _mxfp4, "NVFP4": _nvfp4}
"""By name."""
