"""A loaded projection: one packed weight, or one for each way in which its parts are stored."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.ops.interface import Ops
from headrace.ops.operands import Array, LinearWeight, Norm


@dataclass(frozen=True)
class Linear:
    """A projection, or several that share their input. One weight unless codecs differ, or orders
    of columns.

    Files that mix codecs (GGUF's V in a finer kind than Q and K) cannot be fused; their outputs
    are then computed apart and joined, with the same values.
    """

    ops: Ops
    weights: tuple[LinearWeight, ...]

    def __call__(
        self,
        x: Array,
        *,
        norm: Norm | None = None,
        residual: Array | None = None,
        scale: float = 1.0,
    ) -> Array:
        """residual + scale * (W norm(x) + bias): f32[N, sum of the projections' widths]."""
        if len(self.weights) == 1:
            return self.ops.linear(x, self.weights[0], norm=norm, residual=residual, scale=scale)
        if residual is not None:
            raise ValueError("a residual cannot be added to projections of different codecs")
        x = x if norm is None else self.ops.norm(x, norm)
        return self.ops.concat([self.ops.linear(x, weight, scale=scale) for weight in self.weights])
