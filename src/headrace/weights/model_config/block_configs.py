"""Widths of MLPs in `block_configs`, as a multiple of the residual stream's.

Source: llama.cpp conversion/deci.py.
"""

from __future__ import annotations

MULTIPLE = 256
"""Widths are rounded up to one of these."""


def width_of(multiplier: float, hidden: int) -> int:
    """2/3 of `multiplier` times `hidden`, in whole numbers, rounded up."""
    return -(-int(2 * multiplier * hidden / 3) // MULTIPLE) * MULTIPLE


def multiplier_of(width: int, hidden: int) -> float:
    """A multiplier that gives this width, a multiple of `MULTIPLE`."""
    # Half a unit less: rounding up makes up for it, and no rounding error adds another 256.
    return (width - 0.5) * 3 / (2 * hidden)
