"""The work of a step, or of several, and how long machines take for it at least: the roofline.

Williams, Waterman, Patterson: Roofline (CACM 2009). Engines count it, plans predict it; both divide
it by rates here.
"""

from __future__ import annotations

from typing import NamedTuple


class Work(NamedTuple):
    """Bytes and operations."""

    bytes: float
    """Bytes read and written."""
    operations: float
    """Operations; a multiply and an add are two."""
    attention_operations: float = 0.0
    """Those of attention among them."""

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.operations / self.bytes if self.bytes else 0.0

    def computing_s(self, products_per_s: float, attention_per_s: float | None) -> float:
        """Seconds of its operations, those of products and of attention each at their own rate;
        attention_per_s: None where it is that of products."""
        products = self.operations - self.attention_operations
        attention_s = self.attention_operations / (attention_per_s or products_per_s)
        return products / products_per_s + attention_s
