"""The native module of encoders, as native/encode/module.cpp binds it.

Arrays are C-contiguous NumPy arrays; ValueError names an array of another type or shape.
"""

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
I8 = npt.NDArray[np.int8]
U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]

def levels() -> list[str]:
    """Levels this machine can run, best first. All give the same bits."""

def search(
    kind: str,
    values: F32,
    weights: F32 | None,
    quants: U8,
    scales: I8,
    minimums: I8,
    d: F32,
    dmin: F32,
    level: str = "auto",
) -> None:
    """Codes of `values` into the five arrays after `weights`; see `search.BlockCodes`."""

def nvfp4(values: F32, weights: F32 | None, units: F32, scales: U8, codes: U8) -> None:
    """What `tables.find_nvfp4` gives of runs of 16, into `scales` and `codes`."""

def q2_0(values: F32, weights: F32 | None, scales: F32) -> None:
    """What `few_bits.find_q2_0` gives of blocks of 64, into `scales`."""

def search_points(
    kind: str,
    values: F32,
    weights: F32 | None,
    book: U8,
    points: U16,
    signs: U8,
    scales: U8,
    d: F32,
    level: str = "auto",
) -> None:
    """Codes of `values` as points of `book` into the arrays after it; see `points.PointCodes`."""
