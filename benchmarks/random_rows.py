"""Random rows of any codec, drawn in the codec's own bytes: every bit pattern of quants and small
scales is as likely as any other, and the block scales are chosen so that the values have a given
standard deviation and a mean near zero. For tests as well as benchmarks; kinds without an encoder
can be had in no other way, and no rounding of an encoder hides what a kernel does with rare bits.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from headrace.weights.codecs import Codec, get_codec

# What the subtracted minimum is in units of d, for a mean of zero: the mean quant, with the sign
# each kind stores it with.
_MINIMUMS = {
    "Q4_1": ("m", -7.5), "Q5_1": ("m", -15.5), "Q2_K": ("dmin", 1.5), "Q4_K": ("dmin", 7.5),
    "Q5_K": ("dmin", 15.5),
}  # fmt: skip
# Half way between one half of an E4M3 number and the next: what an index into it is nearest to.
_E4M3_CODES = np.arange(127)
_E4M3_VALUES = np.where(
    _E4M3_CODES < 8, _E4M3_CODES * 2.0**-10, (8 + _E4M3_CODES % 8) * 2.0 ** (_E4M3_CODES // 8 - 11)
)
_E4M3_STEPS = (_E4M3_VALUES[1:] + _E4M3_VALUES[:-1]) / 2
_CALIBRATION_BLOCKS = 4096
# Block scales vary by this factor to both sides, because a kernel that takes one block's scale for
# another's must not get away with it.
_SPREAD = 0.5


def random_rows(
    codec: Codec, rng: np.random.Generator, rows: int, width: int, std: float
) -> npt.NDArray[np.uint8]:
    """uint8[rows, row_bytes]: finite values whose standard deviation is about `std`.

    `std` is met within a few percent, for MXFP4 (whose scales are powers of two) within a factor of
    1.5. Raises CheckpointError when `width` is not a whole number of blocks.
    """
    n_bytes = codec.row_bytes(width)
    if codec.block_elements == 1:
        values = rng.standard_normal((rows, width), np.float32) * np.float32(std)
        return codec.encode(values)
    out = rng.integers(0, 256, (rows, n_bytes), np.uint8)
    blocks = out.reshape(-1).view(codec.layout)
    unit = _unit_deviation(codec.name)
    if codec.name == "MXFP4":
        exponent = 128 + round(float(np.log2(std / unit)))
        blocks["e"] = np.clip(exponent + rng.integers(-1, 2, len(blocks)), 0, 254)
        return out
    if codec.name == "NVFP4":
        factor = rng.uniform(1 - _SPREAD, 1 + _SPREAD, blocks["d"].shape)
        wanted = factor / (1 + _SPREAD**2 / 3) ** 0.5 * (std / unit)
        blocks["d"] = np.clip(np.searchsorted(_E4M3_STEPS, wanted), 1, 126)
        return out
    factor = rng.uniform(1 - _SPREAD, 1 + _SPREAD, len(blocks)) / (1 + _SPREAD**2 / 3) ** 0.5
    if codec.name not in _MINIMUMS:
        factor *= rng.choice([-1.0, 1.0], len(blocks))
    _set_scales(blocks, codec.name, factor * (std / unit))
    return out


def random_float8(rng: np.random.Generator, rows: int, width: int) -> npt.NDArray[np.uint8]:
    """uint8[rows, width]: codes of F8_E4M3 for 2^-6 to 2^-4, of either sign; scales are apart."""
    signs = rng.integers(0, 2, (rows, width), np.uint8) << 7
    codes: npt.NDArray[np.uint8] = rng.integers(8, 24, (rows, width), np.uint8) | signs
    return codes


def _set_scales(
    blocks: npt.NDArray[np.void], name: str, scale: npt.NDArray[np.float64] | float
) -> None:
    if name == "IQ1_M":
        # The F16 lies in the four high bits of four words, its lowest bits in the first.
        bits = np.asarray(scale, "<f2").view("<u2")[..., None] >> np.arange(0, 16, 4, dtype="<u2")
        blocks["scales"] = blocks["scales"] & 0x0FFF | (bits & 15) << 12
        return
    if name == "NVFP4":
        blocks["d"] = 0x40  # half of 2
        return
    blocks["d"] = scale
    if name in _MINIMUMS:
        minimum, ratio = _MINIMUMS[name]
        blocks[minimum] = blocks["d"].astype(np.float64) * ratio


@lru_cache
def _unit_deviation(name: str) -> float:
    """Root mean square of random blocks whose scale is 1."""
    codec = get_codec(name)
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, _CALIBRATION_BLOCKS * codec.block_bytes, np.uint8)
    if name == "MXFP4":
        blocks.view(codec.layout)["e"] = 128
    else:
        _set_scales(blocks.view(codec.layout), name, 1.0)
    return float(np.sqrt(np.mean(np.square(codec.decode(blocks), dtype=np.float64))))
