"""The unit of costs: nano-dollars, so that a bill is whole numbers and sums are exact."""

from __future__ import annotations

NUSD_PER_USD = 1_000_000_000
