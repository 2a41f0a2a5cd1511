"""Queries whose scale grows with the position, so that attention to long contexts stays sharp.

    q = rope(q) * (1 + beta ln(1 + floor((position + offset) / length)))

Up to `length` the factor is 1, and nothing is computed. It depends on the position alone, so a
result does not depend on the batch, and keys in the cache are not touched.
Sources: ai.meta.com/blog/llama-4-multimodal-intelligence; transformers modeling_llama4.py
(`attn_scale`, `floor_scale`) and modeling_ministral3.py (`llama_4_scaling_beta`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class QueryScaling:
    """The factor of queries by position."""

    beta: float
    length: int
    """Positions after which the factor grows for the first time, and so at each multiple."""
    offset: int = 0
    """Added to positions: 1 where the first of them counts as one (Llama 4)."""
    layers: tuple[bool, ...] = ()
    """Which layers scale their queries; empty where all do."""

    def applies_to(self, layer: int) -> bool:
        """Whether a layer scales its queries."""
        return self.layers[layer] if self.layers else True

    def factors(self, positions: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        """f32[N], computed in float64 and rounded once; also where all are 1, since what a step is
        made of must not depend on its positions (`Ops.record_run`)."""
        steps = (positions.astype(np.int64) + self.offset) // self.length
        return (1 + self.beta * np.log1p(steps.astype(np.float64))).astype(np.float32)
