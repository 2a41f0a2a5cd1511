"""Norms of a checkpoint: what a file stores differently (an offset of their weights, rows of Q and
K in another order) is undone here by its conventions.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from headrace.models.loading.reader import TensorReader
from headrace.ops.operands import Array, Norm
from headrace.weights.codecs import F32
from headrace.weights.tensors.rope_rows import heads_to_half
from headrace.weights.tensors.tensor import Tensor


class NormLoader(TensorReader):
    """The norms of one checkpoint for one backend."""

    def norm(
        self, name: str, width: int, eps: float, kind: Literal["rms", "layer"] = "rms"
    ) -> Norm:
        """The norm `{name}.weight`, f32[width]; a layer norm with `{name}.bias` if it is there."""
        bias = f"{name}.bias"
        return Norm(
            self.vector(f"{name}.weight", width, offset=self._conventions.norm_offset),
            eps,
            kind,
            self.vector(bias, width) if kind == "layer" and self.has(bias) else None,
        )

    def norm_of_vector(
        self, name: str, width: int, eps: float, *, factor: float = 1.0, repeats: int = 1
    ) -> Norm:
        """An RMS norm whose weights are a vector of any name, times `factor` and `repeats` times in
        turn: f32[repeats * width].
        """
        tensor = self.tensor(name, width)
        values = np.tile(tensor.to_f32().reshape(-1) * np.float32(factor), repeats)
        self._advance(tensor)
        return Norm(self._f32_vector(name, values), eps)

    def unit_norm(self, width: int, eps: float) -> Norm:
        """An RMS norm without weights, which are 1 then."""
        return Norm(self._f32_vector("ones", np.ones(width, np.float32)), eps)

    def head_norm(
        self,
        name: str,
        head_dim: int,
        eps: float,
        *,
        rotary_dim: int | None = None,
        heads: int = 1,
    ) -> Norm:
        """An RMS norm over each head of Q or K, f32[heads * head_dim] in "half" order.

        heads: how often its weights are repeated, for an operation on all heads at once.
        """
        return self._row_norm(name, (head_dim,), head_dim, eps, "rms", rotary_dim, heads)

    def projection_norm(
        self,
        name: str,
        shape: tuple[int, ...],
        head_dim: int,
        eps: float,
        kind: Literal["rms", "layer"] = "rms",
        *,
        rotary_dim: int | None = None,
    ) -> Norm:
        """A norm with a weight for every row of Q or K, f32[heads * head_dim] in "half" order.

        shape: as stored, (heads * head_dim,) or (heads, head_dim).
        """
        return self._row_norm(name, shape, head_dim, eps, kind, rotary_dim)

    def _row_norm(
        self,
        name: str,
        shape: tuple[int, ...],
        head_dim: int,
        eps: float,
        kind: Literal["rms", "layer"],
        rotary_dim: int | None,
        repeats: int = 1,
    ) -> Norm:
        """Weights that stand beside rows of Q or K are stored in the order of those rows."""
        tensor = self.tensor(f"{name}.weight", *shape)
        values = tensor.to_f32().reshape(-1)
        if self._conventions.rope_layout == "interleaved":
            values = values[heads_to_half(len(values) // head_dim, head_dim, rotary_dim)]
        values = np.tile(values, repeats)
        vector = self._f32_vector(tensor.name, values, offset=self._conventions.norm_offset)
        self._advance(tensor)
        return Norm(vector, eps, kind)

    def _f32_vector(
        self, name: str, values: npt.NDArray[np.float32], *, offset: float = 0.0
    ) -> Array:
        tensor = Tensor(name, values.shape, F32, F32.encode(values.reshape(1, -1)))
        return self._ops.vector(tensor, offset=offset)
