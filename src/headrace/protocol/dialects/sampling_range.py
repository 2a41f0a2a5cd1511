"""Sampling values that an API has a range for.

A value outside would be refused, or, worse, replaced by the provider's default if it were omitted.
So the nearest value is written, and the field is reported as dropped.
"""

from __future__ import annotations


def nearest(value: float, low: float, high: float, field: str, dropped: dict[str, None]) -> float:
    """`value` within low..high; `field` is put into `dropped` if that is another one."""
    within = min(max(value, low), high)
    if within != value:
        dropped[field] = None
    return within


def whole_seed(seed: int) -> int:
    """A seed of 63 bits, as APIs take it that know no negative ones: the same for the same seed."""
    return seed & 0x7FFF_FFFF_FFFF_FFFF
